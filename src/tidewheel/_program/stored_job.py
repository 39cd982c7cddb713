"""StoredJob: a job as it is stored, without its program: its checkpoints, its state and its cells.

The newest state of a fleet is that of all its nodes' runs together, each shard as its holder's last commit left it. Its older
checkpoints are those of the runs, which are jobs of their own: `orders/17`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import DEFAULT_STATE
from tidewheel._checkpoint.tools.savepoint import At, drop_savepoint, find, job_at, make_savepoint, savepoints
from tidewheel._checkpoint.tools.state_reader import Found, StateReader, held
from tidewheel._core.urls import Url
from tidewheel._fleet.fleet_state import holding, is_divided, newest
from tidewheel._state.codec import StateCodec, msgpack_codec
from tidewheel._storage import open_store
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from tidewheel._cells.cell import CellWriter
    from tidewheel._checkpoint.garbage import Collected
    from tidewheel._checkpoint.pins import Pin
    from tidewheel._checkpoint.tools.diff import TableDiff
    from tidewheel._checkpoint.tools.verify import Verification
    from tidewheel._engine.job_status import JobStatus

    _Pins = list[Pin]
    _Diffs = list[TableDiff]

_States = list[Manifest]

T = TypeVar("T")

# What only some methods need is imported by them: a look-up from a cold start must not pay for it.


class StoredJob:
    """A job at a state URL. `at` is a sequence, the name of a savepoint, or None for the newest checkpoint.

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
        """Look for the job; `NotFound` if it has no commit: it says if it is starting, or which jobs are there.

        `state` is its state URL, by default the one that a `Job` has by default.
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
        """Return whether the job runs, where and since when, how far it is and how late, as `tidewheel status` shows it.

        A run on another machine is watched for a sign of life: up to 17 seconds if there is none. `cells` is what
        the program gives as `Job(cells=…)`, if anything.
        """
        from tidewheel._engine.job_status import find, look

        return look(*find(self.store, self.name, cells))

    def stop(self, wait: Duration = "60 s", *, cells: str | None = None) -> bool:
        """Ask the run that has the job, wherever it is, to commit and publish its batch and to end, as `tidewheel stop` does.

        Return whether it has ended within `wait`, or nobody ran it. `cells` as for `status`.
        """
        from tidewheel._engine.job_status import find, stop

        return stop(*find(self.store, self.name, cells), nanoseconds(wait, "wait") / 1e9)[1]

    # Checkpoints.

    def list(self) -> _States:
        """Return the kept checkpoints, ascending."""
        return self.checkpoints.list()

    def show(self, at: At = None) -> Manifest:
        """Return one checkpoint."""
        manifest = find(self.checkpoints, at)
        return manifest if at is not None else newest(self.store, manifest)

    def diff(self, before: At, after: At, *, samples: int = 5) -> _Diffs:
        """Return which keys of which operator changed between two checkpoints, with up to `samples` keys for each."""
        from tidewheel._checkpoint.tools.diff import diff

        return diff(self.store, self.show(before), self.show(after), samples)

    def verify(self, at: int | None = None) -> Verification:
        """Check that all files of the kept checkpoints and savepoints, or of one checkpoint, are there and undamaged."""
        from tidewheel._checkpoint.tools.verify import together, verify

        if at is not None or not is_divided(find(self.checkpoints)):
            return verify(self.store, self.checkpoints, at)
        return together(verify(self.store, chain) for chain in holding(self.store, self.name))

    def savepoint(self, name: str, at: int | None = None) -> Manifest:
        """Give a checkpoint a name: it stays, with all that it needs, until `drop_savepoint`."""
        return make_savepoint(self.checkpoints, name, at)

    def savepoints(self) -> _Pins:
        """Return the savepoints, by name."""
        return savepoints(self.checkpoints)

    def drop_savepoint(self, name: str) -> None:
        """Let go of a savepoint."""
        drop_savepoint(self.checkpoints, name)

    def restore(
        self, at: At, *, keep_output: bool = False, take_over: bool = False, cells: str | None = None
    ) -> Manifest:
        """Go back: the next run goes on from that checkpoint, source offsets included. Returns the commit that says so.

        The next run first takes back from its sinks what was published after that checkpoint. It is refused if a sink
        cannot do so. With `keep_output` everything stays published, and is published a second time. `HeldError` if the job
        runs; `take_over` fences that run. `cells` is what the program gives as `Job(cells=…)`, if anything.
        """
        from tidewheel._engine.stopped_job import restore_stopped

        return restore_stopped(self.checkpoints, self._cells_url(cells), at, keep_output, take_over)

    def fork(self, savepoint: str, new_job: str) -> StoredJob:
        """Begin a new job from a savepoint, at the same state URL. It shares this job's files; none is copied."""
        from tidewheel._checkpoint.tools.fork import fork

        # The number of a checkpoint is refused there, with what to do.
        fork(self.store, self.name, str(savepoint), new_job)
        return StoredJob(new_job, state=self.store.url)

    def release(self) -> tuple[str, ...]:
        """Let other jobs remove the files that this job, a fork, shares with them; return the folders of those jobs.

        `StateError` if this job needs one of those files. A fork whose own folder was removed needs none.
        """
        from tidewheel._checkpoint.tools.fork import release

        return tuple(release(self.store, self.name))

    def move_to(
        self,
        target: StoredJob,
        *,
        keys: Iterable[Any] | None = None,
        shards: Iterable[int] | None = None,
        cells: str | None = None,
    ) -> int:
        """Move keys, or all keys of some shards, with the state and timers of all operators; return how many keys moved.

        Each key is in exactly one of the two jobs, whatever dies when. Nothing may run either job: `HeldError` says who
        does. `FencedError`: one of them was taken over meanwhile, and nothing was moved. `StateError`: the target lacks
        an operator, stores its state otherwise, or has one of the keys already. `cells` is what both programs give as
        `Job(cells=…)`, if their cells are not beside their state.
        """
        from tidewheel._checkpoint.transfer import JobPlace
        from tidewheel._engine.move import move

        places = (JobPlace(job.name, job.store.url, cells) for job in (self, target))
        return move(*places, keys=keys, shards=shards).keys

    def gc(
        self, *, keep: int | None = None, grace: Duration | Literal[0] | None = None, dry_run: bool = False
    ) -> Collected:
        """Remove files that nothing needs and that are older than `grace`, by default ten minutes.

        With `keep`, only so many of the newest checkpoints stay. With `dry_run`, nothing is removed.
        """
        from tidewheel._checkpoint.garbage import GRACE_NS, collect

        wait = GRACE_NS if grace is None else nanoseconds(grace or "0 s", "grace")
        return collect(self.checkpoints, grace=wait, dry_run=dry_run, keep=keep)

    # State.

    def get(self, operator: str, key: Any, *, at: At = None, type: Any = None) -> Found:
        """Look up one key. Only what that takes is read. `type` is what the value is decoded as."""
        return StateReader(self.store, self.show(at)).get(operator, key, _codec(type))

    def keys(self, operator: str, *, at: At = None, prefix: str = "") -> Iterator[Any]:
        """Yield every key of an operator; with `prefix`, only text keys that start with it."""
        with self._reading(at) as reader:
            yield from reader.keys(operator, prefix)

    def scan(self, operator: str, *, at: At = None, prefix: str = "", type: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield every key of an operator with its value; `prefix` and `type` as in `keys` and `get`."""
        with self._reading(at) as reader:
            yield from reader.scan(operator, _codec(type), prefix)

    def export(self, operator: str, path: str | os.PathLike[str], *, at: At = None, type: Any = None) -> int:
        """Write an operator's state to a Parquet file: the key, then the value's fields; return the number of keys.

        `ConfigError`: the name of the file says that it is of another format.
        """
        from tidewheel._checkpoint.tools.export import export

        _check_parquet(os.fspath(path))
        with self._reading(at) as reader:
            return export(reader, operator, path, type)

    # Cells.

    @overload
    def cell(self, name: str, declared: type[T], *, cells: str | None = None) -> CellWriter[T]: ...
    @overload
    def cell(self, name: str, declared: Any = None, *, cells: str | None = None) -> CellWriter[Any]: ...
    def cell(self, name: str, declared: Any = None, *, cells: str | None = None) -> CellWriter[Any]:
        """Open a cell that the job's program declares, to read, follow and change it. Close it, or use it in a `with` block.

        `read()` is None while nobody has written the cell: the job then works with its default. `declared` is the type, as
        the program has it; `WrongType` if it has another. Without it values are plain numbers, texts, lists and dicts. What
        is written is checked in either case. `ConfigError`: the program declares no such cell. `cells` is what the program
        gives as `Job(cells=…)`, if anything.
        """
        from tidewheel._engine.stored_cells import stored_cells

        return stored_cells(self.store, self.name, cells).connect(name, declared)

    @contextlib.contextmanager
    def _reading(self, at: At) -> Iterator[StateReader]:
        """Read a checkpoint that stays meanwhile. A fleet's is no checkpoint: its files stay for the grace of its runs."""
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
    """Refuse a file whose name says that it is not Parquet: readers would believe the name."""
    from tidewheel._connectors.files.extensions import format_by_name

    format = format_by_name(os.path.basename(path))
    if format not in (None, "parquet"):
        better = os.path.join(os.path.dirname(path), os.path.basename(path).partition(".")[0] + ".parquet")
        raise ConfigError(
            f"an export is a Parquet file, and the name of {path} says {format}: call it {better}. For another format, convert "
            f'that, with pandas.read_parquet("{better}").to_csv(…) for example'
        )
