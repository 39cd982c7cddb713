"""StoredJob: a job as stored, without its program: its checkpoints, state and cells.

The newest state of a fleet combines the runs of all nodes: each shard is as the last commit of its holder left it.
Older checkpoints belong to the runs, which are jobs of their own: `orders/17`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import DEFAULT_STATE
from tidewheel._checkpoint.store import CheckpointStore
from tidewheel._checkpoint.tools.savepoint import At, drop_savepoint, find, job_at, make_savepoint, savepoints
from tidewheel._checkpoint.tools.state_reader import Found, StateReader, held
from tidewheel._core.urls import Url
from tidewheel._spark.newest_state import is_divided, newest
from tidewheel._state.codec import StateCodec, msgpack_codec
from tidewheel._storage import open_store
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from tidewheel._cells.cell import CellWriter
    from tidewheel._checkpoint.garbage import Collected
    from tidewheel._checkpoint.pins import Pin
    from tidewheel._checkpoint.tools.diff import TableDiff
    from tidewheel._checkpoint.tools.key_history import KeyChanges, KeyHistory
    from tidewheel._checkpoint.tools.verify import Verification
    from tidewheel._engine.job_status import JobStatus
    from tidewheel._program.job import Job
    from tidewheel._replay.key_trace import TracedMessage
    from tidewheel._replay.replay import Replayed, WrittenRow
    from tidewheel._replay.shadow import Shadowed
    from tidewheel._spark.options import RunOptions

    _Messages = list[TracedMessage]
    _Pins = list[Pin]
    _Diffs = list[TableDiff]

_States = list[Manifest]

T = TypeVar("T")

# Methods import what only they need, so that a look-up starts fast.


class StoredJob:
    """A stored job at a state URL. `at` is a sequence, the name of a savepoint, or None for the newest checkpoint.

    >>> from tidewheel import Job, StoredJob, sinks, sources
    >>> from tidewheel.testing import run_in_memory
    >>> job = Job("largest")
    >>> numbers = job.source("in", sources.iterable([3, 4])).key_by("by-parity", lambda n: n % 2)
    >>> _ = numbers.reduce("largest", max).sink("out", sinks.collect())
    >>> _ = run_in_memory(job, state="memory:largest")
    >>> stored = StoredJob("largest", state="memory:largest")
    >>> stored.get("largest", 1).value, sorted(stored.scan("largest"))
    (3, [(0, 4), (1, 3)])
    """

    def __init__(self, job: str, *, state: str = DEFAULT_STATE) -> None:
        """Find a job; raise `NotFound` if it has no commit. The error says if it is starting, or lists the existing jobs.

        `state` is the state URL; its default is that of `Job`.
        """
        self.name = job
        self.store = open_store(state)
        try:
            self.checkpoints = job_at(self.store, job)
        except NotFound:
            from tidewheel._engine.job_status import without_commit

            starting = without_commit(self.store, job)
            if starting is None:
                raise
            raise NotFound(starting) from None

    def __repr__(self) -> str:
        return f"<StoredJob {self.name!r}, state at {Url(self.store.url)}>"

    def status(self, *, cells: str | None = None) -> JobStatus:
        """Return whether, where and since when the job runs, its progress and its lag, like `tidewheel status`.

        A run on another machine must show a sign of life, for which this call waits up to 17 seconds. `cells` must
        match the program's `Job(cells=…)`, if given there.
        """
        from tidewheel._engine.job_status import find, look

        return look(*find(self.store, self.name, cells))

    def stop(self, wait: Duration = "60 s", *, cells: str | None = None) -> bool:
        """Ask the current run, wherever it is, to commit and publish its batch and end, like `tidewheel stop`.

        Return True if the run ended within `wait` or the job was not running. `cells` as for `status`.
        """
        from tidewheel._engine.job_status import find, stop

        return stop(*find(self.store, self.name, cells), nanoseconds(wait, "wait") / 1e9)[1]

    # Checkpoints.

    def list(self) -> _States:
        """Return the kept checkpoints in ascending order."""
        return self.checkpoints.list()

    def show(self, at: At = None) -> Manifest:
        """Return one checkpoint."""
        manifest = find(self.checkpoints, at)
        return manifest if at is not None else newest(self.store, manifest)

    def program(self, at: At = None) -> dict[str, str]:
        """Return the source of the program that made a commit, by file. Raise `NotFound` if it is not stored.

        `Job(keep_for_replay=…)` stores it.
        """
        from tidewheel._engine.declaration import source_of

        return source_of(self.store, find(self.checkpoints, at))

    def diff(self, before: At, after: At, *, samples: int = 5) -> _Diffs:
        """Return the keys of each step that changed between two checkpoints, with up to `samples` keys each."""
        from tidewheel._checkpoint.tools.diff import diff

        return diff(self.store, self.show(before), self.show(after), samples)

    def verify(self, at: int | None = None) -> Verification:
        """Check that all files of the kept checkpoints and savepoints, or of one checkpoint, exist and are undamaged."""
        from tidewheel._checkpoint.tools.verify import together, verify

        if at is not None or not is_divided(find(self.checkpoints)):
            return verify(self.store, self.checkpoints, at)
        from tidewheel.fleet._nodes.fleet_state import holding  # Only a fleet's job needs it.

        return together(verify(self.store, chain) for chain in holding(self.store, self.name))

    def savepoint(self, name: str, at: int | None = None) -> Manifest:
        """Name a checkpoint. It is kept, with everything it needs, until `drop_savepoint`."""
        return make_savepoint(self.checkpoints, name, at)

    def savepoints(self) -> _Pins:
        """Return the savepoints, by name."""
        return savepoints(self.checkpoints)

    def drop_savepoint(self, name: str) -> None:
        """Delete a savepoint."""
        drop_savepoint(self.checkpoints, name)

    def restore(
        self, at: At, *, keep_output: bool = False, take_over: bool = False, cells: str | None = None
    ) -> Manifest:
        """Make the next run continue from this checkpoint, source offsets included. Return the commit that records it.

        The next run first removes from its sinks everything that was published after the checkpoint, and is refused if
        a sink cannot remove it. With `keep_output` all output stays, and the run publishes that output a second time.
        Raises `HeldError` if the job runs; `take_over` fences that run. `cells` must match the program's
        `Job(cells=…)`, if given there.
        """
        from tidewheel._engine.stopped_job import restore_stopped

        return restore_stopped(self.checkpoints, self._cells_url(cells), at, keep_output, take_over)

    def fork(self, savepoint: str, new_job: str) -> StoredJob:
        """Create a new job from a savepoint, at the same state URL. It shares this job's files; no file is copied."""
        from tidewheel._checkpoint.tools.fork import fork

        # `fork` rejects the number of a checkpoint and says what to do.
        fork(self.store, self.name, str(savepoint), new_job)
        return StoredJob(new_job, state=self.store.url)

    def release(self) -> tuple[str, ...]:
        """Allow other jobs to delete the files that this fork shares with them; return the folders of those jobs.

        Raises `StateError` if this job still needs one of those files. A fork whose own folder was deleted needs none.
        """
        from tidewheel._checkpoint.tools.fork import release

        return tuple(release(self.store, self.name))

    def replay(
        self,
        program: Job,
        sequence: int | Literal["next"],
        *,
        changed: bool = False,
        samples: int = 5,
        debug: bool = False,
        key: Any = None,
        options: RunOptions | None = None,
        elsewhere: bool = False,
    ) -> Replayed:
        """Run the batch of a commit again, and compare state and output.

        The second run uses the same state, records, time, epoch, cells and number of tasks, publishes nothing and
        changes nothing of the job. It runs in this process; with `options`, on the Spark that they name.

        - `program`: the program that made the commit. Another one is refused, unless `changed` says that it is to be
          compared with the commit.
        - `sequence`: the commit. "next" runs the batch after the newest commit, which may have failed, in this process;
          there is nothing to compare.
        - `samples`: how many keys and rows of a difference to return.
        - `debug`: starts the debugger at the first error of the program's functions, with a `key` also in each function
          that gets a message of this key. In this process only.
        - `elsewhere`: make the second of the two compared runs in another process of this machine, where sets of texts
          have another order. That process must be able to read the state.
        """
        from tidewheel._replay.replay import replay, run_next

        if options is not None and (debug or sequence == "next"):
            raise ConfigError("a debugger, and the next batch, run in this process: leave out options")
        if sequence == "next":
            return run_next(self._of_this_job(program), self.store, debug=debug, key=key)
        runtime = None
        if options is not None:
            from tidewheel._spark.replay_runtime import SparkRuntime

            runtime = SparkRuntime(options)
        return replay(
            self._of_this_job(program),
            self.store,
            sequence,
            changed=changed,
            samples=samples,
            debug=debug,
            key=key,
            runtime=runtime,
            elsewhere=elsewhere,
        )

    def shadow(
        self,
        program: Job,
        *,
        last: int | None = None,
        since: At = None,
        old: Job | None = None,
        samples: int = 5,
        allow_dropped_state: Collection[str] = (),
    ) -> Shadowed:
        """Run a changed program over the batches of this job, in this process and without Spark, and compare.

        Either the `last` batches, or all since a checkpoint or savepoint. It begins from the same state, which is
        converted as in a real start, reads the same records, publishes nothing and changes nothing of the job, which
        may be running. `old` is the program that made the commits: with it, rows are compared one by one; without it,
        state and numbers of rows. `allow_dropped_state` names steps that the program lacks.
        """
        from tidewheel._replay.shadow import shadow

        return shadow(
            self._of_this_job(program),
            self.store,
            last=last,
            since=since,
            old=None if old is None else self._of_this_job(old),
            samples=samples,
            allow_dropped_state=allow_dropped_state,
        )

    def gc(
        self, *, keep: int | None = None, grace: Duration | Literal[0] | None = None, dry_run: bool = False
    ) -> Collected:
        """Delete files that are unused and older than `grace`, by default ten minutes.

        With `keep`, keep only that many of the newest checkpoints. With `dry_run`, delete nothing.
        """
        from tidewheel._checkpoint.garbage import GRACE_NS, collect

        wait = GRACE_NS if grace is None else nanoseconds(grace or "0 s", "grace")
        return collect(self.checkpoints, grace=wait, dry_run=dry_run, keep=keep)

    # State.

    def get(self, step: str, key: Any, *, at: At = None, type: Any = None) -> Found:
        """Look up one key, reading only the files that it needs. `type` is the type to decode the value as."""
        return StateReader(self.store, self.show(at)).get(step, key, _codec(type))

    def history(self, step: str, key: Any) -> KeyHistory:
        """Return the values of a key: one for each kept checkpoint where it changed, oldest first."""
        from tidewheel._checkpoint.tools.key_history import key_history

        kept = self.list()
        if kept and is_divided(kept[-1]):
            runs = ", ".join(
                stream for stream in CheckpointStore(self.store).streams() if stream.startswith(f"{self.name}/")
            )
            raise ConfigError(
                f"job {self.name!r} is run by a fleet, and the checkpoints of a key are those of the runs that held its shard. "
                f"Ask for the history in each run: {runs or 'there is none yet'}"
            )
        if kept:
            StateReader(self.store, kept[-1]).info(step)
        return key_history(self.store, kept, step, key)

    def changes(self, before: At, after: At, key: Any) -> KeyChanges:
        """Return the steps in which the state of a key differs between two checkpoints, with both values."""
        from tidewheel._checkpoint.tools.key_history import key_changes

        return key_changes(self.store, self.show(before), self.show(after), key)

    def messages(self, program: Job, sequence: int, step: str, key: Any, *, changed: bool = False) -> _Messages:
        """Return the messages of a key that reached a step in the batch of a commit, in order, or were dropped before.

        Each has its origin, and the state before and after it. The batch runs again, as in `replay`, one message at a
        time, which takes about a millisecond for each record of the batch. `changed` as for `replay`.
        """
        from tidewheel._replay.replay import messages_of_key

        return messages_of_key(self._of_this_job(program), self.store, sequence, step, key, changed=changed)

    def written(
        self, program: Job, sink: str, where: Callable[[dict[str, Any]], bool], *, changed: bool = False
    ) -> Iterator[WrittenRow]:
        """Yield the rows of a sink for which `where` is true, each with the kept commit that wrote it, oldest first.

        All kept batches run again, as in `replay`; `changed` is as there.
        """
        from tidewheel._replay.replay import rows_written

        return rows_written(self._of_this_job(program), self.store, sink, where, changed=changed)

    def keys(self, step: str, *, at: At = None, prefix: str = "") -> Iterator[Any]:
        """Yield every key of a step; with `prefix`, only text keys that start with it."""
        with self._reading(at) as reader:
            yield from reader.keys(step, prefix)

    def scan(self, step: str, *, at: At = None, prefix: str = "", type: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield every key of a step with its value; `prefix` and `type` as in `keys` and `get`."""
        with self._reading(at) as reader:
            yield from reader.scan(step, _codec(type), prefix)

    def export(self, step: str, path: str | os.PathLike[str], *, at: At = None, type: Any = None) -> int:
        """Write a step's state to a Parquet file: the key, then the value's fields; return the number of keys.

        Raises `ConfigError` if the file name has the extension of another format.
        """
        from tidewheel._checkpoint.tools.export import export

        _check_parquet(os.fspath(path))
        with self._reading(at) as reader:
            return export(reader, step, path, type)

    # Cells.

    @overload
    def cell(self, name: str, declared: type[T], *, cells: str | None = None) -> CellWriter[T]: ...
    @overload
    def cell(self, name: str, declared: Any = None, *, cells: str | None = None) -> CellWriter[Any]: ...
    def cell(self, name: str, declared: Any = None, *, cells: str | None = None) -> CellWriter[Any]:
        """Open a cell that the job's program declares, to read, follow or change it. Close it, or use a `with` block.

        `read()` returns None until somebody writes the cell; until then the job uses the cell's default. `declared` is
        the type in the program; another type raises `WrongType`. Without it values are plain numbers, texts, lists and
        dicts. Written values are checked in both cases. Raises `ConfigError` if the program does not declare the cell.
        `cells` must match the program's `Job(cells=…)`, if given there.
        """
        from tidewheel._engine.stored_cells import stored_cells

        return stored_cells(self.store, self.name, cells).connect(name, declared)

    def _of_this_job(self, program: Job) -> Job:
        """Return the program whose batches run again. Raise `ConfigError` for another job's, and for a fleet."""
        if "/" in self.name or is_divided(find(self.checkpoints)):
            raise ConfigError(f"the batches of job {self.name!r} cannot run again: they are those of a fleet")
        if program.name != self.name:
            raise ConfigError(
                f"the program is that of job {program.name!r}, not of {self.name!r}: give both the same name"
            )
        return program

    @contextlib.contextmanager
    def _reading(self, at: At) -> Iterator[StateReader]:
        """Pin a checkpoint while it is read.

        A fleet has no checkpoint to pin: the grace period of its runs protects its files.
        """
        with held(self.store, self.checkpoints, at) as reader:
            divided = at is None and is_divided(reader.manifest)
            yield StateReader(self.store, newest(self.store, reader.manifest)) if divided else reader

    def _cells_url(self, cells: str | None) -> str:
        from tidewheel._engine.control import cells_of
        from tidewheel._engine.declaration import place_of_job

        return cells_of(place_of_job(self.store, self.name, cells))


def _codec(type: Any) -> StateCodec | None:
    return None if type is None else msgpack_codec(type)


def _check_parquet(path: str) -> None:
    """Raise if the file name has an extension other than Parquet's, which would mislead readers."""
    from tidewheel._connectors.files.extensions import format_by_name

    format = format_by_name(os.path.basename(path))
    if format not in (None, "parquet"):
        better = os.path.join(os.path.dirname(path), os.path.basename(path).partition(".")[0] + ".parquet")
        raise ConfigError(
            f"an export is a Parquet file, and the name of {path} says {format}: call it {better}. For another format, convert "
            f'that, with pandas.read_parquet("{better}").to_csv(…) for example'
        )
