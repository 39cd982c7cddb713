"""From reports to a manifest: pure functions, so that what is committed can be argued about without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidewheel._checkpoint.manifest import CheckpointId, Kind, Manifest, OperatorInfo, StagedOutput
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Report
from tidewheel._state.compaction import merge
from tidewheel._state.references import PartRef, ShardParts
from tidewheel._time.frontier import Frontier, advanced, merged
from tidewheel.errors import OperatorError, StateError, TidewheelError

DELIVERED = "*"
"""The entry among the manifest's frontiers that is no input: the epoch that the operators got last."""


_FAILURES: dict[str, type[TidewheelError]] = {kind.__name__: kind for kind in (OperatorError, StateError)}


def check_reports(reports: Sequence[Report], levels: Sequence[int], parallelism: int) -> None:
    """Refuse a batch in which a task failed or did not report, or messages were lost between levels."""
    for report in reports:
        if report.failure is not None:
            raise _FAILURES.get(report.failure.kind, OperatorError)(report.failure.text)
    for level in sorted({*levels, *(report.level for report in reports)}):
        told = sorted(report.partition for report in reports if report.level == level)
        # Level 0 has as many partitions as the source gave, which only Spark knows; the others have one per task.
        expected = list(range(len(told) if level == 0 else parallelism)) if level in levels else []
        if told != expected:
            raise TidewheelError(
                f"level {level} of the batch has reports of the partitions {told}, not of {expected}; nothing is committed"
            )
    for edge in {edge for report in reports for edge in (*report.sent, *report.received)}:
        sent = sum(report.sent.get(edge, 0) for report in reports)
        received = sum(report.received.get(edge, 0) for report in reports)
        if sent != received:
            raise TidewheelError(f"edge {edge} was sent {sent} messages and {received} arrived; nothing is committed")


def next_shards(base: Mapping[int, ShardParts], reports: Iterable[Report]) -> dict[int, ShardParts]:
    """Return what makes each shard whole after the batch."""
    deltas: dict[int, list[PartRef]] = {}
    snapshots: dict[int, PartRef] = {}
    for report in reports:
        for shard, part in report.deltas.items():
            deltas.setdefault(shard, []).append(part)
        for shard, part in report.snapshots.items():
            if shard in snapshots:
                raise StateError(f"two tasks wrote a snapshot of shard {shard}; nothing is committed")
            snapshots[shard] = part
    shards = dict(base)
    for shard in deltas.keys() | snapshots.keys():
        parts = tuple(sorted(deltas.get(shard, ()), key=lambda part: part.file.name))
        shards[shard] = merge(base.get(shard, ShardParts()), parts, snapshots.get(shard))
    return shards


def staged_outputs(reports: Iterable[Report]) -> tuple[StagedOutput, ...]:
    """Return what the batch staged for each sink, in an order that does not depend on which task ended first."""
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
    """Return what the manifest says of each operator with state."""
    infos = {}
    for node in plan.nodes:
        if node.operator.stateful:
            version = getattr(getattr(node.operator, "state", None), "version", 1)
            infos[node.name] = OperatorInfo(
                node.operator.kind, node.operator.codec_name, version, fingerprint=node.operator.state_layout
            )
    return infos


def last_epoch(state: Manifest) -> int | None:
    """Return the epoch that the operators got last; the merged one, `watermark_ns`, goes out with the next batch."""
    delivered = state.frontiers.get(DELIVERED)
    return None if delivered is None else delivered.time


def epoch_due(state: Manifest, epoch: int | None = None) -> int | None:
    """Return the epoch that the batch after a commit carries: the given one or the merged one, if it is new."""
    last, due = last_epoch(state), state.watermark_ns if epoch is None else epoch
    return due if due is not None and (last is None or due > last) else None


def time_after(base: Manifest, spec: BatchSpec, plan: Plan, reports: Sequence[Report], kind: Kind) -> dict[str, Any]:
    """Return the manifest's fields about time after a batch; only batches and the final flush carry epochs."""
    if kind not in ("batch", "flush"):
        return {}
    inputs = plan.inputs()
    frontiers = advanced(base.frontiers, inputs, [report.frontiers for report in reports], spec.now)
    # A final flush, or a test, delivers an epoch that no input gave.
    known = max((time for time in (base.watermark_ns, spec.epoch) if time is not None), default=None)
    epoch = merged(frontiers, inputs, spec.now, known)
    delivered = last_epoch(base) if spec.epoch is None else spec.epoch
    if delivered is not None:
        frontiers[DELIVERED] = Frontier(delivered, spec.now)
    return {"frontiers": frontiers, "watermark_ns": epoch}


def next_manifest(
    base: Manifest, spec: BatchSpec, plan: Plan, reports: Sequence[Report], kind: Kind, **facts: Any
) -> Manifest:
    """Return the manifest that commits the batch; `facts` are the fields that Spark's side of the driver knows."""
    sources = {node.name for node in plan.sources()}
    events = sum(number for report in reports for name, number in report.counts.items() if name in sources)
    fields: dict[str, Any] = {
        "id": CheckpointId(base.id.stream_id, spec.sequence),
        "kind": kind,
        "run": spec.run,
        "event_count": base.event_count + events,
        "parallelism": spec.parallelism,
        "now": spec.now,
        "operators": {**base.operators, **operator_infos(plan)},
        "shards": next_shards(base.shards, reports),
        "outputs": staged_outputs(reports),
        "counts": added(base.counts, (report.counts for report in reports)),
        "parent": base.sequence,
        **time_after(base, spec, plan, reports, kind),
    }
    return base.replace(**{**fields, **facts})
