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
"""How many ns of the clock's advance during silence a crash may lose in any case."""


def is_idle(base: Manifest, manifest: Manifest, inputs: Iterable[Input]) -> bool:
    """Return whether nothing is lost if the manifest of a batch that follows `base` is not committed.

    It differs from `base` by what every batch changes: its number, its time, and that `base`'s output is published. How long
    inputs were silent may differ too, and so may the epoch where nothing but silence moved it (`advance_after`): nothing was
    due by it. See `clock_must_be_committed` for how much of that may be lost.
    """
    # What nearly every batch with data changes comes first: looking through all shards is only for those without.
    if manifest.outputs or base.event_count != manifest.event_count:
        return False
    known = {each.name: each for each in inputs}
    return _lasting_part(base, known) == _lasting_part(manifest, known)


def clock_must_be_committed(committed: Manifest, manifest: Manifest, inputs: Iterable[Input]) -> bool:
    """Return whether silence has moved an input's clock so far since the newest commit that a crash should not lose it.

    What waits for the clock would come as much later. A crash loses at most a minute of it or a quarter of all that
    silence has moved the clock, whichever is more: so commits become rarer the longer the silence is.
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

    What `base` owes outside is still to be recorded, by the next commit.
    """
    owed = {name: getattr(base, name) for name in OutputFields.__annotations__}
    return manifest.replace(id=base.id, kind=base.kind, parent=base.parent, carried_epoch=base.carried_epoch, **owed)


def _lasting_part(state: Manifest, inputs: dict[str, Input]) -> tuple[Manifest, object]:
    """Return what of a manifest must not be lost."""
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
