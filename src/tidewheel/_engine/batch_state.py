"""The state of a task: opened as of the batch's base, and written as files when the task is done."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from xxhash import xxh64_intdigest

from tidewheel._checkpoint.encoding import decode as decode_manifest
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import CHAIN, folder
from tidewheel._checkpoint.pages import PageReader
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._checkpoint.state_files import file_store, range_reader, shard_by_shard_opener
from tidewheel._core import faults
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.report import Visits
from tidewheel._engine.shards import task_of
from tidewheel._state.bounded_files import BoundedFiles
from tidewheel._state.key_lookup import KeyLookup
from tidewheel._state.key_run import KeyRun
from tidewheel._state.local_copies import LocalCopies, folder_name
from tidewheel._state.references import PartRef
from tidewheel._state.state_file import Items
from tidewheel._state.task_state import TaskState
from tidewheel._storage import Store
from tidewheel._storage.chain import Chain
from tidewheel.errors import CorruptError

DELTA = faults.declare("task.delta", "a task is about to write its delta, or the last file of it")
DELTA_WRITTEN = faults.declare("task.delta-written", "a task's delta is durable")

_PAGE, _ENTRY = 4096, 10
"""The bytes of a page of a local copy, and the bytes that an entry needs in addition to its key and value."""
_HELD_INDEXES = 128 << 20
"""The maximum size of the indexes of state files that a process keeps."""
_COUNTED = 64
"""About how many shards are counted in a batch."""


class BatchState:
    """One task's state of one batch. Nothing is opened before a step asks for it."""

    def __init__(self, spec: BatchSpec, store: Store, partition: int, names: Iterable[str]) -> None:
        """Take the batch's spec, its store, the number of this task in its level, and names for its files."""
        self._spec, self._store, self._partition, self._names = spec, store, partition, names
        self._opened: TaskState | None = None
        self._begun: dict[int, dict[str, int]] = {}
        """By shard that held nothing before and table, about how many bytes a local copy of it takes."""
        self.grown: dict[str, dict[int, int]] = {}
        """By step and shard, how many more keys have state than before the batch."""

    @property
    def opened(self) -> TaskState:
        """The state as of the base manifest."""
        if self._opened is None:
            spec, manifest = self._spec, _base_manifest(self._spec, self._store)
            copies = LocalCopies.at(local_folder(spec.local, spec.stream, manifest.lineage))
            fetch = shard_by_shard_opener(self._store, spec.stream)
            awake = {table: frozenset(filter(self._is_mine, shards)) for table, shards in spec.awake.items()}
            lookup = partial(_key_lookup, spec, self._store)
            self._opened = TaskState(spec.n_shards, spec.base, manifest.shards, copies, fetch, awake, spec.run, lookup)
        return self._opened

    def shards(self) -> list[int]:
        """Return the task's shards that have state or got data."""
        stored = ShardMap.of(self.opened.parts, self._spec.n_shards).of_task(self._partition, self._spec.parallelism)
        return sorted({*stored, *filter(self._is_mine, self.opened.touched())})

    def update_copies(self) -> None:
        """Bring the local copies of the task's shards up to date."""
        for shard in self.shards():
            self.opened.update_copy(shard)

    def all_shards(self) -> list[int]:
        """Return the shards of this task that the run has."""
        spec = self._spec
        shards = range(spec.n_shards) if spec.shards is None else sorted(spec.shards)
        return [shard for shard in shards if self._is_mine(shard)]

    def write_delta(self) -> tuple[dict[int, list[PartRef]], dict[str, int]]:
        """Write the changes of the batch; return them by shard, and the number of changed keys of each table."""
        if self._opened is None:
            return {}, {}
        files = BoundedFiles(file_store(self._store, self._spec.stream, self._names), self._spec.sequence)
        changed: dict[str, int] = {}
        for shard, table, items in self._opened.changes():
            files.add(shard, table, items)
            changed[table] = changed.get(table, 0) + len(items)
            if self._spec.figures:
                self._count(shard, table, items)
        if not changed:
            self._opened.written({})
            return {}, {}
        faults.point(DELTA)
        written = files.finish()
        faults.point(DELTA_WRITTEN)
        self._opened.written(written)
        return written, changed

    def next_timers(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return when the next timers are due in the shards whose timers the task read or changed."""
        return {} if self._opened is None else self._opened.next_timers()

    def sizes(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return keys, and bytes in the local copies, of each step by shard, as of the base: `grown` is not among them.

        To cost almost no time, it counts only shards that are already open, and only some of them if there are many. Timers and
        segments count as bytes, not as keys. The bytes of a shard that was empty before are estimated, because its local copy
        is made by the next batch that opens it.
        """
        if self._opened is None:
            return {}
        turns, by_block = max(1, self._spec.n_shards // _COUNTED), self._opened.by_block
        sizes: dict[str, dict[int, tuple[int, int]]] = {}

        def is_counted(shard: int) -> bool:
            return (shard + self._spec.sequence) % turns == 0 and shard not in by_block

        for shard, table, keys, used in self._opened.sizes(is_counted):
            _add(sizes, shard, table, keys, used)
        for operator, shards in self.grown.items():
            # A table that held nothing as of the base is not among those that were opened.
            for shard in filter(is_counted, shards):
                _add(sizes, shard, operator, 0, 0)
        for shard, tables in self._begun.items():
            for table, used in tables.items():
                _add(sizes, shard, table, 0, used)
        return sizes

    def _count(self, shard: int, table: str, items: Items) -> None:
        if _has_keys(table):
            of_operator = self.grown.setdefault(table.partition("/")[0], {})
            of_operator[shard] = of_operator.get(shard, 0) + self.opened.grown(shard, table)
        if shard not in self.opened.parts:
            # The changes of a shard that was empty before contain no dropped keys.
            run = KeyRun.of(items)
            used = sum(map(len, run.keys)) + sum(map(len, filter(None, run.values))) + _ENTRY * len(run)
            self._begun.setdefault(shard, {})[table] = -(-used // _PAGE) * _PAGE

    @property
    def caught_up(self) -> int:
        """Bytes of state files that the local copies took in."""
        return 0 if self._opened is None else self._opened.caught_up

    @property
    def visits(self) -> Visits:
        """How many shards the task has opened, and how many of them had a stale copy here."""
        return Visits() if self._opened is None else Visits(*self._opened.visits(), self._opened.stale_bytes)

    def close(self) -> None:
        """Release the local copies."""
        if self._opened is not None:
            self._opened.close()

    def _is_mine(self, shard: int) -> bool:
        return task_of(shard, self._spec.parallelism) == self._partition


def _has_keys(table: str) -> bool:
    """Return whether each entry of a table is one more key with state: in tables with a second name, keys come again."""
    return "/" not in table


def _add(sizes: dict[str, dict[int, tuple[int, int]]], shard: int, table: str, keys: int, used: int) -> None:
    of_operator = sizes.setdefault(table.partition("/")[0], {})
    before = of_operator.get(shard, (0, 0))
    of_operator[shard] = (before[0] + (keys if _has_keys(table) else 0), before[1] + used)


def local_folder(local: str, job: str, lineage: str) -> str:
    """Return the folder of a job's local copies on this host."""
    return f"{local}/{folder_name(job, lineage)}"


_lookups: dict[tuple[str, str], KeyLookup] = {}


def _key_lookup(spec: BatchSpec, store: Store) -> KeyLookup:
    """Return this process's look-up in the job's state files; it keeps their indexes for the next batch."""
    known = (spec.state, spec.stream)
    lookup = _lookups.get(known)
    if lookup is None:
        _lookups.clear()
        lookup = _lookups[known] = KeyLookup(range_reader(store, spec.stream), held_bytes=_HELD_INDEXES)
    return lookup


_manifests: dict[tuple[str, str, int, int], Manifest] = {}


def _base_manifest(spec: BatchSpec, store: Store) -> Manifest:
    """Return the manifest that the batch starts from, read once per process, and checked against the driver's spec."""
    known = (spec.state, spec.stream, spec.base, spec.base_checksum)
    manifest = _manifests.get(known)
    if manifest is None:
        at = store.at(folder(spec.stream))
        data = Chain(at, CHAIN).read(spec.base)
        if int(xxh64_intdigest(data)) != spec.base_checksum:
            raise CorruptError(
                f"manifest {spec.base} of job {spec.stream!r} at {spec.state} is not the one the driver started the batch from; "
                "nothing is committed: start the job again"
            )
        _manifests.clear()
        manifest = _manifests[known] = decode_manifest(data, spec.stream, load_page=PageReader(at))
    return manifest
