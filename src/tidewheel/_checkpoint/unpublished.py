"""What a commit still has to do outside: output that may not be published yet, output that must be taken back.

Both go from commit to commit until a run has done them. A run commits a batch or a flush only after everything before it
is published and taken back. `published` in the batch's manifest records it, so no extra request is needed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict

from tidewheel._checkpoint.manifest import Manifest, Span, StagedOutput


class OutputFields(TypedDict):
    """The fields of a manifest that are about output."""

    outputs: tuple[StagedOutput, ...]
    outputs_of: int | None
    published: int
    retract: Span | None
    retracted: tuple[Span, ...]
    sinks: dict[str, int]


def outputs_of(state: Manifest) -> int:
    """Return the sequence under which a manifest's output is published: that of the batch which staged it."""
    return state.sequence if state.outputs_of is None else state.outputs_of


def owes_output(state: Manifest) -> bool:
    """Tell whether a run has something to publish, or to take back, before it computes anything."""
    return bool(state.outputs) or state.retract is not None


def carried(base: Manifest) -> OutputFields:
    """Return the output fields of a commit that follows `base` and carries on what it owes."""
    return {
        "outputs": base.outputs,
        "outputs_of": outputs_of(base),
        "published": base.published,
        "retract": base.retract,
        "retracted": base.retracted,
        "sinks": base.sinks,
    }


def settled(base: Manifest, outputs: tuple[StagedOutput, ...] = ()) -> OutputFields:
    """Return the output fields of a commit by a run that has done all that `base` owes; `outputs` are the commit's own."""
    return {
        "outputs": outputs,
        "outputs_of": None,
        "published": base.sequence,
        "retract": None,
        "retracted": retracted(base),
        "sinks": taken_back(base, base.sinks) | {output.sink: base.sequence + 1 for output in outputs if output.tokens},
    }


def retracted(state: Manifest) -> tuple[Span, ...]:
    """Return the sequences whose output may be gone: a run has been told to take it back."""
    # Only a run takes output back, and it claims the job first.
    if state.kind == "restore" or state.retract is None:
        return state.retracted
    return (*state.retracted, state.retract)


def void_sinks(state: Manifest) -> list[str]:
    """Return the sinks that may have output which a restore made void, and which nobody has taken back."""
    void = state.retract
    return [] if void is None else sorted(name for name, newest in state.sinks.items() if newest > void.after)


def is_void(state: Manifest, sink: str) -> bool:
    """Tell whether a sink may have output which a restore made void: all may of which the manifest says nothing."""
    void = state.retract
    return void is not None and state.sinks.get(sink, void.before) > void.after


def taken_back(state: Manifest, names: Collection[str]) -> dict[str, int]:
    """Return the newest output of all sinks once nothing that is void is expected of the named ones any more."""
    void = state.retract
    if void is None:
        return state.sinks
    return {name: min(newest, void.after) if name in names else newest for name, newest in state.sinks.items()}
