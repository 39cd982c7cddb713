"""Decide whether a batch needs a commit. Pure.

A job that waits for time runs a batch every tick, and most of these batches change nothing. Committing each of them would push
useful checkpoints out of the history, and cost a request to the store every second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.unpublished import OutputFields
from tidewheel._time.frontier import Input, merged, operator_of

_MAY_BE_LOST = 60 * 10**9
"""A crash may always lose this much of the clock's advance during silence, in ns."""


def is_idle(base: Manifest, manifest: Manifest, inputs: Iterable[Input]) -> bool:
    """Return whether nothing is lost if the manifest of a batch that follows `base` is not committed.

    Such a manifest differs from `base` only in the fields that every batch changes: its number, its time, and that the output
    of `base` is published. The time that inputs were silent may differ too, and so may an epoch that only silence has moved
    (`advance_after`) if no timer was due. `clock_must_be_committed` limits how much of such an advance may be lost.
    """
    # Compare first the fields that nearly every batch with data changes: comparing all shards takes longer.
    if manifest.outputs or base.event_count != manifest.event_count:
        return False
    known = {each.name: each for each in inputs}
    return _lasting_part(base, known) == _lasting_part(manifest, known)


def clock_must_be_committed(committed: Manifest, manifest: Manifest, inputs: Iterable[Input]) -> bool:
    """Return whether silence has moved an input's clock so far since the newest commit that it must be committed.

    After a crash, results that wait for the clock are late by the lost advance. It is at most a minute or a quarter of the
    advance since the last data, whichever is more; so commits become rarer the longer the silence is.
    """
    known = {each.name: each for each in inputs}
    for name in manifest.frontiers.keys() & committed.frontiers.keys():
        each, frontier = known[operator_of(name)], manifest.frontiers[name]
        before, after = each.time(committed.frontiers[name]), each.time(frontier)
        if frontier.time is None or before is None or after is None:
            continue
        if after - before > max(_MAY_BE_LOST, (after - frontier.time) // 4):
            return True
    return False


def uncommitted_head(base: Manifest, manifest: Manifest) -> Manifest:
    """Return the head after a batch that was not committed: `base`, with the fields that every batch changes.

    The next commit still has to record the unpublished and void output of `base`.
    """
    owed = {name: getattr(base, name) for name in OutputFields.__annotations__}
    return manifest.replace(id=base.id, kind=base.kind, parent=base.parent, carried_epoch=base.carried_epoch, **owed)


def _lasting_part(state: Manifest, inputs: dict[str, Input]) -> tuple[Manifest, object]:
    """Return the fields of a manifest that must not be lost."""
    first = Manifest(CheckpointId(state.id.stream_id, 0, 0))
    neutral = {name: getattr(first, name) for name in ("id", "kind", "batch", "now", "parent", "carried_epoch")}
    neutral |= {name: getattr(first, name) for name in OutputFields.__annotations__}
    clocks = {
        name: (frontier.time, inputs[operator_of(name)].is_idle(frontier))
        for name, frontier in state.frontiers.items()
        if operator_of(name) in inputs
    }
    epochs = _without_silence(state, inputs)
    return state.replace(**neutral, **epochs, frontiers={}), clocks


def _without_silence(state: Manifest, inputs: dict[str, Input]) -> dict[str, int | None]:
    """Return a manifest's epochs, each up to the one that its inputs' data gave."""
    epochs = {"epoch": state.epoch, "delivered_epoch": state.delivered_epoch}
    if all(each.advance_after is None for each in inputs.values()):
        return epochs
    standing = [dataclasses.replace(each, advance_after=None) for each in inputs.values()]
    given = merged(state.frontiers, standing, None)
    return {name: time if time is None or given is None else min(time, given) for name, time in epochs.items()}
