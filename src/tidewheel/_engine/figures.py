"""The figures of a commit for history and metrics, made of the reports of its tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._core.logs import logger
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import added
from tidewheel._engine.hot_keys import hot_keys
from tidewheel._engine.phases import Phases
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Report
from tidewheel._observe.records import Behind, Called, CommitRecord, Published, StepRecord, Stored
from tidewheel._observe.run_history import Sizes
from tidewheel._time.duration import MAX_TIME

_LOG = logger(__name__)

_LETTERS = 10
"""How many dead letters the record of a commit holds."""
_SHARDS_SECONDS = 60.0
"""How often the sizes of all shards go into a record."""


class CommitListener(Protocol):
    """Receives the figures of each commit. It must not block."""

    def committed(self, record: CommitRecord) -> None:
        """Take the figures of a commit whose output is published."""


class StateSizes:
    """Keys of each step by shard, as of the newest commit; and bytes, as they were counted last."""

    def __init__(self) -> None:
        self.by_shard: dict[str, dict[int, Stored]] = {}
        self._totals: dict[str, Stored] = {}
        self._keys: dict[int, int] = {}
        """Keys of all steps by shard."""
        self._grown: dict[tuple[str, int], int] = {}
        """By step and shard, how many keys were added since this run began, if the number before is unknown."""

    def put(self, operator: str, shard: int, size: Stored) -> None:
        """Take a count in place of the shard's last one."""
        shards = self.by_shard.setdefault(operator, {})
        before, total = shards.get(shard, Stored(0, 0)), self._totals.get(operator, Stored(0, 0))
        shards[shard] = size
        self._grown.pop((operator, shard), None)
        self._keys[shard] = self._keys.get(shard, 0) - before.keys + size.keys
        self._totals[operator] = Stored(total.keys - before.keys + size.keys, total.bytes - before.bytes + size.bytes)

    def grow(self, operator: str, shard: int, keys: int) -> None:
        """Take that a shard has so many keys more than before."""
        size = self.by_shard.get(operator, {}).get(shard)
        if size is None:
            self._grown[operator, shard] = self._grown.get((operator, shard), 0) + keys
        elif keys:
            self.put(operator, shard, Stored(size.keys + keys, size.bytes))

    def seed(self, known: Sizes, operators: Collection[str], shards: Collection[int]) -> None:
        """Take what an earlier run counted, of these steps and shards, where this one has not counted yet."""
        for operator in known.keys() & set(operators):
            for shard, size in known[operator].items():
                if shard in shards and shard not in self.by_shard.get(operator, ()):
                    self.put(operator, shard, Stored(size.keys + self._grown.get((operator, shard), 0), size.bytes))

    @property
    def skew(self) -> float:
        """Keys of the largest shard, divided by the mean of all shards that hold any; 0 if none does."""
        held = [keys for keys in self._keys.values() if keys]
        return max(held) * len(held) / sum(held) if held else 0.0

    @property
    def totals(self) -> dict[str, Stored]:
        """By step."""
        return dict(self._totals)


class Figures:
    """Makes the record of each commit of a run, and passes it to the listeners.

    Errors are logged and do not reach the run.
    """

    def __init__(self, plan: Plan, listeners: Sequence[CommitListener], node: str = "") -> None:
        """Take the plan of the run, the listeners, and the name of the node in a fleet."""
        self.plan, self.node = plan, node
        self._listeners = tuple(listeners)
        self.sizes = StateSizes()
        self.behind: Callable[[], dict[str, dict[str, Behind]]] = dict
        """Returns the unread amount by source and partition."""
        self.reported: Callable[[], None] = lambda: None
        """Called when the figures of a commit have been reported."""
        self._next_shards = 0.0
        self._recalled: Sizes | None = None

    def recall(self, sizes: Sizes) -> None:
        """Take what earlier runs counted, for shards that this one has not opened. From any thread."""
        self._recalled = sizes

    def committed(self, manifest: Manifest, spec: BatchSpec, reports: Sequence[Report], phases: Phases) -> None:
        """Tell of a commit whose output is published."""
        try:
            for report in reports:
                for operator, shards in report.stored.items():
                    for shard, (keys, used) in shards.items():
                        self.sizes.put(operator, shard, Stored(keys, used))
            # Every count first: tasks of several levels count one shard, and each knows what its own steps changed.
            for report in reports:
                for operator, grown in report.grown.items():
                    for shard, keys in grown.items():
                        self.sizes.grow(operator, shard, keys)
            if self._recalled is not None:
                self.sizes.seed(self._recalled, manifest.operators, manifest.shards)
                self._recalled = None
            whole = time.monotonic() >= self._next_shards
            if whole:
                self._next_shards = time.monotonic() + _SHARDS_SECONDS
            record = record_of(manifest, spec, self.plan, reports, phases, self.sizes, self.behind(), self.node, whole)
        except Exception:
            _LOG.exception("cannot report the figures of commit %d", manifest.sequence)
            return
        _LOG.debug(
            "commit %d: %d rows in %.3f s, phases %s", record.sequence, record.rows, record.seconds, record.phases
        )
        for listener in self._listeners:
            try:
                listener.committed(record)
            except Exception:
                _LOG.exception("%s did not take the figures of commit %d", type(listener).__name__, manifest.sequence)
        self.reported()


def record_of(
    manifest: Manifest,
    spec: BatchSpec,
    plan: Plan,
    reports: Sequence[Report],
    phases: Phases,
    sizes: StateSizes,
    behind: dict[str, dict[str, Behind]],
    node: str = "",
    whole: bool = False,
) -> CommitRecord:
    """Return the figures of a commit; with `whole`, the size of every shard among them."""
    counts = added({}, (report.counts for report in reports))
    names = {operator.name for operator in plan.nodes}
    rows_in = {name: number for name, number in counts.items() if name in names}
    staged = {output.sink: output.rows for output in manifest.outputs}
    rows_out = {**added({}, (report.emitted for report in reports)), **staged}
    own = {label: labelled(counts, label) for label in ("late", "dropped", "dead", "failed")}
    seconds = dict(phases.seconds)
    reading = min(max((report.reading for report in reports), default=0.0), seconds.get("tasks", 0.0))
    if "tasks" in seconds:
        seconds |= {"read": reading, "tasks": seconds["tasks"] - reading}
    deltas = [part for report in reports for parts in report.deltas.values() for part in parts]
    merges = [found for report in reports for found in report.merged.values()]
    return CommitRecord(
        sequence=manifest.sequence,
        at=manifest.id.created_at,
        kind=manifest.kind,
        run=spec.run,
        node=node,
        batch=manifest.batch if manifest.kind == "batch" else None,
        parallelism=spec.parallelism,
        tasks=phases.tasks or spec.parallelism,
        seconds=phases.total,
        phases=seconds,
        rows=sum(rows_in.get(source.name, 0) for source in plan.sources()),
        rows_in=rows_in,
        rows_out=rows_out,
        busy=_summed(report.busy for report in reports),
        late=own["late"],
        dropped=own["dropped"],
        dead=added(own["dead"], (report.dead for report in reports)),
        changed=_by_operator(added({}, (report.changed for report in reports))),
        stored=sizes.totals,
        shards={operator: dict(shards) for operator, shards in sizes.by_shard.items()} if whole else {},
        epoch=None if manifest.epoch == MAX_TIME else manifest.epoch,
        behind=behind,
        delta_bytes=sum(part.bytes for part in deltas),
        deltas=len(deltas),
        snapshot_bytes=sum(part.bytes for found in merges if found.whole for part in found.parts),
        snapshots=sum(found.whole for found in merges),
        merged_bytes=sum(part.bytes for found in merges if not found.whole for part in found.parts),
        caught_up_bytes=sum(report.caught_up for report in reports),
        published={sink: Published(rows, phases.sinks.get(sink, 0.0)) for sink, rows in staged.items()},
        cells={name: cell.version for name, cell in manifest.cells.items()},
        events=manifest.event_count,
        held=None if spec.shards is None else len(spec.shards),
        skew=round(sizes.skew, 3),
        letters=tuple(letter for report in reports for letter in report.letters)[:_LETTERS],
        hot=hot_keys((report.hot for report in reports), rows_out),
        called=_called(counts),
        failed=own["failed"],
        tables={name: (table.version, table.rows) for name, table in manifest.tables.items()},
        visits=sum(report.visits.shards for report in reports),
        stale_visits=sum(report.visits.stale for report in reports),
        stale_bytes=sum(report.visits.stale_bytes for report in reports),
        ran_in=phases.ran_in,
    )


def operator_records(plan: Plan) -> tuple[StepRecord, ...]:
    """Return the graph of a plan as history has it."""
    level = {number: depth for depth, numbers in enumerate(plan.levels) for number in numbers}
    return tuple(
        StepRecord(
            node.name,
            node.operator.step,
            level[node.id],
            node.operator.stateful,
            tuple((plan.nodes[port.node].name, port.port) for port in node.inputs),
        )
        for node in plan.nodes
    )


def labelled(counts: Mapping[str, int], label: str) -> dict[str, int]:
    """Return the counters that steps keep under a label, such as `by-user/late`, by step."""
    found = ((name.rpartition("/"), number) for name, number in counts.items())
    return {operator: number for (operator, _, own), number in found if operator and own == label}


def _called(counts: Mapping[str, int]) -> dict[str, Called]:
    """Return the calls of each `map_async` step, from the counters that it keeps."""
    labels = ("calls", "failures", "cached", "call_ms")
    by_label = [labelled(counts, label) for label in labels]
    return {step: Called(*(numbers.get(step, 0) for numbers in by_label)) for step in by_label[-1]}


def _by_operator(tables: Mapping[str, int]) -> dict[str, int]:
    """Return the changed keys of each step; timers, and further tables of a step, are no keys of their own."""
    return {table: number for table, number in tables.items() if "/" not in table}


def _summed(many: Iterable[Mapping[str, float]]) -> dict[str, float]:
    result: dict[str, float] = {}
    for seconds in many:
        for name, number in seconds.items():
            result[name] = result.get(name, 0.0) + number
    return {name: round(number, 6) for name, number in result.items()}
