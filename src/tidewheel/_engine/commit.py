"""Make the manifest of a commit from the tasks' reports. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidewheel._checkpoint.manifest import (
    CheckpointId,
    Kind,
    LayoutKind,
    Manifest,
    OperatorInfo,
    Position,
    SeenFile,
    StagedOutput,
)
from tidewheel._checkpoint.named_results import result_fields
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._checkpoint.unpublished import carried, settled
from tidewheel._engine.batch_spec import BatchSpec, WholeRecordsNeeded
from tidewheel._engine.key_kinds import (
    check_joins,
    kinds_of_state,
    lasting_kinds,
    merged_kinds,
    stored_kinds,
    without_state,
)
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Report
from tidewheel._operators.base import Operator
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._state.compaction import adopted, merge
from tidewheel._state.references import PartRef, ShardParts
from tidewheel._state.type_description import Field
from tidewheel._time.frontier import advanced, merged
from tidewheel.errors import ConfigError, Retry, StateError, StepError, TidewheelError, UserTraceback

_NOTHING = ShardParts()
_FAILURES: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (StepError, Retry, StateError, ConfigError, WholeRecordsNeeded)
}


class MixedAttempts(TidewheelError):
    """Raised if a batch consumed other output of a task than the one that the task's report describes. Run the batch again."""


def check_reports(reports: Sequence[Report], tasks: Mapping[int, int | None]) -> None:
    """Refuse a batch in which a task failed or did not report, or messages were lost between levels.

    `tasks` has the number of tasks of each level that ran; None: only Spark knows it, because it divides a user's DataFrame.
    Raise the error of the first task that failed; `WholeRecordsNeeded` if that task needs the whole record to report an error;
    `MixedAttempts` if the batch should run again.
    """
    for report in sorted(reports, key=lambda report: (report.level, report.partition)):
        failure = report.failure
        if failure is not None:
            cause = UserTraceback(failure.traceback) if failure.traceback else None
            raise _FAILURES.get(failure.kind, StepError)(failure.text) from cause
    for level in sorted({*tasks, *(report.level for report in reports)}):
        partitions = sorted(report.partition for report in reports if report.level == level)
        number = tasks.get(level, 0)
        expected = list(range(len(partitions) if number is None else number))
        if partitions != expected:
            raise TidewheelError(
                f"level {level} of the batch has reports of the partitions {partitions}, not of {expected}; nothing is committed"
            )
    looked_through = {report.looked_through for report in reports if report.looked_through is not None}
    kept = sum(report.kept for report in reports)
    if looked_through and looked_through != {kept}:
        read = " and ".join(f"{number:,}" for number in sorted(looked_through))
        raise TidewheelError(
            f"the tasks that read the files of the batch found {read} records in them, but kept {kept:,}, so a file has changed; "
            "nothing is committed. Files of a source must appear whole and never change: restore the former content"
        )
    # All processed blocks come from the attempts that report, and none is missing. So every task processed the whole output of
    # exactly one attempt of each earlier task, no matter how often Spark ran these tasks.
    reported = {(report.level, report.partition): report.attempt for report in reports}
    for report in reports:
        for level, partition, attempt in report.consumed:
            if reported.get((level, partition)) != attempt:
                raise MixedAttempts(
                    f"task {report.partition} of level {report.level} processed output of another attempt of task {partition} of "
                    f"level {level} than the one that reported; nothing is committed"
                )
    for edge in {edge for report in reports for edge in (*report.sent, *report.received)}:
        sent = sum(report.sent.get(edge, 0) for report in reports)
        received = sum(report.received.get(edge, 0) for report in reports)
        if sent != received:
            # A task took nothing of an attempt that sent it nothing, and would have got something of the one that reported.
            raise MixedAttempts(f"edge {edge} was sent {sent} messages and {received} arrived; nothing is committed")


def layout_of(reports: Iterable[Report]) -> LayoutKind:
    """Return how the tasks of a batch were laid out. Pure."""
    found = list(reports)
    if not found:
        return ""
    if any(report.looked_through is not None for report in found):
        return "shared"
    return "divided" if any(report.partition for report in found) else "one"


def next_shards(base: Mapping[int, ShardParts], reports: Iterable[Report], n_shards: int) -> ShardMap:
    """Return the parts of each shard after the batch. The cost depends only on the changes of the batch."""
    deltas: dict[int, list[PartRef]] = {}
    changes: dict[int, ShardParts | None] = {}
    for report in reports:
        for shard, parts in report.deltas.items():
            deltas.setdefault(shard, []).extend(parts)
        for shard, result in report.merged.items():
            # The result of a merge is ignored if its runs no longer exist.
            merged_parts = adopted(base.get(shard, ShardParts()), result)
            if merged_parts is not None:
                changes[shard] = merged_parts
    for shard, fresh in deltas.items():
        before = changes.get(shard) or base.get(shard) or _NOTHING
        changes[shard] = merge(before, fresh if len(fresh) == 1 else sorted(fresh, key=lambda part: part.file.name))
    return ShardMap.of(base, n_shards).with_parts(changes)


def staged_outputs(reports: Iterable[Report]) -> tuple[StagedOutput, ...]:
    """Return the staged output of the batch for each sink, ordered by task."""
    ordered = sorted(reports, key=lambda report: (report.level, report.partition))
    names = sorted({name for report in ordered for name in report.outputs})
    outputs = []
    for name in names:
        staged = [report.outputs[name] for report in ordered if name in report.outputs]
        tokens = tuple(item.token for item in staged if item.token is not None)
        outputs.append(StagedOutput(name, sum(item.rows for item in staged), tokens))
    return tuple(outputs)


def added(totals: Mapping[str, int], more: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counters by name."""
    result = dict(totals)
    for counters in more:
        for name, number in counters.items():
            result[name] = result.get(name, 0) + number
    return result


def operator_infos(plan: Plan) -> dict[str, OperatorInfo]:
    """Return the entry of each stateful step for the manifest."""
    return {node.name: info_of(node.operator) for node in plan.nodes if node.operator.stateful}


def info_of(operator: Operator) -> OperatorInfo:
    """Return the entry of a stateful step for the manifest."""
    kept = operator.kept
    described = ((name, spec.description) for name, spec in kept.items())
    return OperatorInfo(
        operator.kind,
        operator.codec_name,
        max((spec.version for spec in kept.values()), default=1),
        layout=operator.state_layout,
        values=result_fields(operator.results_kept)
        or tuple(Field(name, type) for name, type in described if type is not None),
    )


def sink_places(plan: Plan) -> dict[str, str]:
    """Return the kind and the place of each sink of a plan."""
    return {node.name: node.operator.sink.place() for node in plan.nodes if isinstance(node.operator, SinkOperator)}


class SourceProgress(msgspec.Struct, frozen=True):
    """How far a batch has read its sources."""

    batch: int
    """The number of the batch."""
    source_offsets: dict[str, Position] = {}
    source_kinds: dict[str, str] = {}
    seen: tuple[SeenFile, ...] = ()
    driver: ShardParts = ShardParts()
    starts: dict[str, Position] = {}
    """The start positions of sources that no earlier commit had read."""


def is_computed(kind: Kind) -> bool:
    """Return whether a commit of this kind has output and epochs of its own; other kinds keep those of an earlier commit."""
    return kind in ("batch", "epoch", "flush")


def epoch_due(state: Manifest, epoch: int | None = None) -> int | None:
    """Return the epoch that the batch after a commit carries: the given one or the merged one, if it is new."""
    last, due = state.delivered_epoch, state.epoch if epoch is None else epoch
    return due if due is not None and (last is None or due > last) else None


def with_time(manifest: Manifest, base: Manifest, spec: BatchSpec, plan: Plan, reports: Sequence[Report]) -> Manifest:
    """Return the manifest of a computed commit with its fields about time."""
    inputs = plan.inputs()
    frontiers = advanced(base.frontiers, inputs, [report.frontiers for report in reports], spec.asked, spec.held)
    # A final flush, or a test, delivers an epoch that no input gave.
    known = max((time for time in (base.epoch, spec.epoch) if time is not None), default=None)
    return manifest.replace(
        frontiers=frontiers,
        epoch=merged(frontiers, inputs, known),
        carried_epoch=spec.epoch,
        delivered_epoch=base.delivered_epoch if spec.epoch is None else spec.epoch,
        behind={},
    )


def next_manifest(
    base: Manifest,
    spec: BatchSpec,
    plan: Plan,
    reports: Sequence[Report],
    kind: Kind,
    progress: SourceProgress | None = None,
    operators: Mapping[str, OperatorInfo] | None = None,
    former: Mapping[str, str] | None = None,
) -> Manifest:
    """Return the manifest that commits the results in the reports.

    Each batch gives its `progress`. `steps` replaces the entries of stateful steps; by default those of the plan are
    added to those of `base`. `former` maps renamed steps to their names in `base`. When a batch commits, all earlier output
    is published; other kinds of commits keep the record of unpublished output.
    """
    sources = {node.name for node in plan.sources()}
    events = sum(number for report in reports for name, number in report.counts.items() if name in sources)
    # A step's name may now be the name of a `key_by`: the entries of steps are rebuilt with each commit.
    given = without_state(base.key_kinds, base.operators)
    key_kinds = merged_kinds(given, *(report.key_kinds for report in reports), plan=plan)
    check_joins(plan, key_kinds)
    state_kinds = kinds_of_state(plan, key_kinds, stored_kinds(base.key_kinds, base.operators, former or {}))
    manifest = base.replace(
        id=CheckpointId(base.id.stream_id, spec.sequence),
        kind=kind,
        run=spec.run,
        event_count=base.event_count + events,
        parallelism=spec.parallelism,
        layout=layout_of(reports),
        now=spec.now,
        cells=spec.cells,
        tables=spec.tables,
        operators={**base.operators, **operator_infos(plan)} if operators is None else dict(operators),
        former_operators={},
        key_kinds={**lasting_kinds(key_kinds), **state_kinds},
        shards=next_shards(base.shards, reports, base.n_shards),
        counts=added(base.counts, (report.counts for report in reports)),
        parent=base.sequence,
        source_starts={},
        flushed=spec.sequence if kind == "flush" else base.flushed,
        **(settled(base, staged_outputs(reports), sink_places(plan)) if is_computed(kind) else carried(base)),
    )
    if is_computed(kind):
        manifest = with_time(manifest, base, spec, plan, reports)
    if progress is None:
        return manifest
    return manifest.replace(
        batch=progress.batch,
        source_offsets=progress.source_offsets,
        source_kinds=progress.source_kinds,
        seen=progress.seen,
        driver=progress.driver,
        source_starts=progress.starts,
        spark=None,
    )
