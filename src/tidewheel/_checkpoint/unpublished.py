"""Pending work of a commit outside the state: output to publish, and output to remove from sinks.

Both are carried from commit to commit until a run has done them. A run commits a batch or a flush only after all
earlier output is published or removed. `published` in the batch's manifest records it, so no extra request is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypedDict

from tidewheel._checkpoint.manifest import Manifest, SinkPlace, Span, StagedOutput


class OutputFields(TypedDict):
    """The fields of a manifest about output."""

    outputs: tuple[StagedOutput, ...]
    outputs_of: int | None
    published: int
    retract: Span | None
    retracted: tuple[Span, ...]
    sinks: dict[SinkPlace, int]


def outputs_of(state: Manifest) -> int:
    """Return the sequence under which a manifest's output is published: that of the batch that staged it."""
    return state.sequence if state.outputs_of is None else state.outputs_of


def owes_output(state: Manifest) -> bool:
    """Return whether a run must publish or remove output before it computes anything."""
    return bool(state.outputs) or state.retract is not None


def carried(base: Manifest) -> OutputFields:
    """Return the output fields of a commit that follows `base` and carries its pending output."""
    return {
        "outputs": base.outputs,
        "outputs_of": outputs_of(base),
        "published": base.published,
        "retract": base.retract,
        "retracted": base.retracted,
        "sinks": base.sinks,
    }


def settled(
    base: Manifest, outputs: tuple[StagedOutput, ...] = (), places: Mapping[str, str] | None = None
) -> OutputFields:
    """Return the output fields of a commit by a run that has no pending output of `base` left.

    `outputs` is the commit's own output; `places` has the `place` of each sink.
    """
    written = {
        (output.sink, (places or {}).get(output.sink, "")): base.sequence + 1 for output in outputs if output.tokens
    }
    return {
        "outputs": outputs,
        "outputs_of": None,
        "published": base.sequence,
        "retract": None,
        "retracted": retracted(base),
        "sinks": taken_back(base, {name for name, _ in base.sinks}) | written,
    }


def retracted(state: Manifest) -> tuple[Span, ...]:
    """Return the sequences whose output may be removed, because a run has been asked to remove it."""
    # Only a run removes output, and it claims the job first.
    if state.kind == "restore" or state.retract is None:
        return state.retracted
    return (*state.retracted, state.retract)


def staged_for(state: Manifest, sink: str) -> str:
    """Return the place for which a manifest's output was staged; empty if unknown."""
    newest = outputs_of(state)
    return next((place for (name, place), number in state.sinks.items() if (name, number) == (sink, newest)), "")


def is_place(known: str, place: str) -> bool:
    """Return whether a recorded place may be this one."""
    return known in ("", place)


def void_sinks(state: Manifest) -> list[SinkPlace]:
    """Return the sinks that may have output which a restore made void and which was not removed."""
    void = state.retract
    return [] if void is None else sorted(sink for sink, newest in state.sinks.items() if newest > void.after)


def is_void(state: Manifest, sink: str, place: str) -> bool:
    """Return whether a sink may have output which a restore made void: true for all sinks that the manifest does not list."""
    void = state.retract
    if void is None:
        return False
    known = [newest for (name, where), newest in state.sinks.items() if name == sink and is_place(where, place)]
    return not known or max(known) > void.after


def taken_back(state: Manifest, names: Collection[str]) -> dict[SinkPlace, int]:
    """Return the newest output of all sinks, after void output of the named sinks no longer has to be removed."""
    void = state.retract
    if void is None:
        return state.sinks
    return {
        (name, place): min(newest, void.after) if name in names else newest
        for (name, place), newest in state.sinks.items()
    }
