"""Whether a batch says anything that is worth a commit. Pure.

A job that waits for time runs a batch every tick. Most of them change nothing. A commit each would push the checkpoints that
matter out of the history, and cost a request to the store every second.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidewheel._checkpoint.manifest import CheckpointId, Manifest, SparkLog
from tidewheel._checkpoint.unpublished import OutputFields
from tidewheel._time.frontier import Input, operator_of


def is_idle(base: Manifest, manifest: Manifest, inputs: Iterable[Input]) -> bool:
    """Tell whether nothing is lost if the manifest of a batch that follows `base` is not committed.

    It differs from `base` by what every batch changes: its number, its time, the clock's line in Spark's offsets, and that
    `base`'s output is published. How long inputs were silent may differ too, as long as that moves no clock.
    """
    # What nearly every batch with data changes comes first: looking through all shards is only for those without.
    if manifest.outputs or (base.event_count, base.epoch) != (manifest.event_count, manifest.epoch):
        return False
    known = {each.name: each for each in inputs}
    return _lasting(base, known) == _lasting(manifest, known)


def moved_on(base: Manifest, manifest: Manifest) -> Manifest:
    """Return what a run goes on from after a batch that it did not commit: `base`, with what every batch changes.

    What `base` owes outside is still to be recorded, by the next commit.
    """
    owed = {name: getattr(base, name) for name in OutputFields.__annotations__}
    return manifest.replace(id=base.id, kind=base.kind, parent=base.parent, carried_epoch=base.carried_epoch, **owed)


def _lasting(state: Manifest, inputs: dict[str, Input]) -> tuple[Manifest, object, object]:
    """Return what of a manifest must not be lost."""
    first = Manifest(CheckpointId(state.id.stream_id, 0, 0))
    neutral = {name: getattr(first, name) for name in ("id", "kind", "batch", "now", "parent", "carried_epoch")}
    neutral |= {name: getattr(first, name) for name in OutputFields.__annotations__}
    clocks = {
        name: (inputs[operator_of(name)].time(frontier), inputs[operator_of(name)].is_idle(frontier))
        for name, frontier in state.frontiers.items()
        if operator_of(name) in inputs
    }
    return state.replace(**neutral, spark=None, frontiers={}), clocks, _sources(state.spark)


def _sources(log: SparkLog | None) -> SparkLog | None:
    """Return what a log says of the program's sources; their offsets are in the manifest itself."""
    return None if log is None else msgspec.structs.replace(log, offsets={}, commits={})
