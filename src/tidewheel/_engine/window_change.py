"""Advice for a window whose length has changed: run the old and the new window together until the old one is empty. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidewheel._engine.plan import Plan
from tidewheel._operators.graph import Node, Port
from tidewheel._operators.timestamps.assign_timestamps import AssignTimestamps
from tidewheel._operators.timestamps.generate_epochs import GenerateEpochs
from tidewheel._state.layout import StateLayout

_WAY = """
Open windows cannot be divided among the new ones. Run the old windows next to the new ones, divided by a time in the
future. In place of the changed line write:

    from datetime import datetime
    cut = {cut}
{lines}
    both = old.union("both", new)                         # goes to the sink

where {streams}, and {time} the time of a record. When `tidewheel state keys {job} {plain}` prints
nothing, take out all but the new window, and run once with --allow-dropped-state {plain}. docs/howto-change.md has it in full"""
_STREAM = """\
    before, after = events.branch("cut", lambda event: {time} < cut, lambda event: {time} >= cut)
    old = before.key_by({by}, …).window({name}, …)        # as it was: its name, its length
    new = after.key_by({by_2}, …).window({new}, …)    # as it is now, under a new name"""
_SIDES = """\
    parts = (lambda event: {time} < cut, lambda event: {time} >= cut)
    left_before, left_after = left.branch("left-cut", *parts)
    right_before, right_after = right.branch("right-cut", *parts)
    # As it was: its name, its length. Then as it is now, under a new name.
    old = left_before.key_by({by}, …).window_join({name}, right_before.key_by({right}, …), …)
    new = left_after.key_by({by_2}, …).window_join({new}, right_after.key_by({right_2}, …), …)"""
WAYS = {
    "window": (_STREAM, "events is the stream with timestamps"),
    "window_join": (_SIDES, "left and right are the streams with timestamps"),
}
"""By kind of step: the lines, and the meaning of the names in them."""


@dataclass(frozen=True)
class WindowPlace:
    """The steps before a window in the program that determine its clock."""

    key_steps: tuple[str, ...] = ("by", "right-by")
    """The names of the `key_by` of its inputs."""
    disorder: int | None = None
    """How far, in ns, records may be ahead of the clock of the data; None: only the program's function knows."""
    time: str = "event.at"
    """How the time of a record is written in the program."""
    shared: bool = False
    """Whether other steps read the output of such a `key_by`, so that its name is not free for the old window's alone."""


def window_places(plan: Plan) -> dict[str, WindowPlace]:
    """Return the steps before each window and each window join of a program."""
    nodes = {node.id: node for node in plan.nodes}
    epochs = [node.operator for node in plan.nodes if isinstance(node.operator, GenerateEpochs)]
    is_fixed = bool(epochs) and all(each.function is None for each in epochs)
    disorder = max(each.bound for each in epochs) if is_fixed else None

    readers = Counter(port.node for node in plan.nodes for port in node.inputs)

    def key_step(node: Node) -> Node:
        while node.operator.kind != "key_by":
            node = nodes[node.inputs[0].node]
        return node

    def place(node: Node) -> WindowPlace:
        steps = [key_step(nodes[port.node]) for port in node.inputs]
        shared = any(readers[step.id] > 1 for step in steps)
        return WindowPlace(tuple(step.name for step in steps), disorder, _time(nodes, steps[0].inputs[0]), shared)

    return {node.name: place(node) for node in plan.nodes if node.operator.kind in WAYS}


def _time(nodes: Mapping[int, Node], events: Port) -> str:
    """Return how the time of the records at an output is written: as an item of a dict, or as an attribute."""
    shape, node = nodes[events.node].shapes[events.port], nodes[events.node]
    while node.inputs and not isinstance(node.operator, AssignTimestamps):
        node = nodes[node.inputs[0].node]
    given = node.operator.time if isinstance(node.operator, AssignTimestamps) else None
    column = given if isinstance(given, str) else "at"
    return f'event["{column}"]' if shape.kind == "dict" else f"event.{column}"


def way_to_another_window(
    job: str, name: str, kind: str, layouts: tuple[StateLayout, StateLayout], clock: int | None, place: WindowPlace
) -> str:
    """Return the program lines that replace windows of one layout by windows of another.

    `clock` is the clock of the data, in ns: that of the input whose time has come furthest.
    """
    moment = cut(*layouts, clock, place.disorder)
    by, right = place.key_steps[0], place.key_steps[-1]
    # A window's state is under its own name, which does not depend on the name of the key_by before it.
    old = "-old" if place.shared else ""
    after = "after all that was read, and a window of each kind begins there"
    shown = f"datetime.fromisoformat({moment.isoformat()!r})" if moment is not None else "…"
    lines, streams = WAYS[kind]
    return _WAY.format(
        cut=f"{shown}    # {after}",
        lines=lines.format(
            name=repr(name),
            new=repr(f"{name}-2"),
            by=repr(f"{by}{old}"),
            by_2=repr(f"{by}-2"),
            right=repr(f"{right}{old}"),
            right_2=repr(f"{right}-2"),
            time=place.time,
        ),
        time=place.time,
        streams=streams,
        plain=name,
        job=job,
    )


def cut(was: StateLayout, now: StateLayout, clock: int | None, disorder: int | None = None) -> datetime | None:
    """Return the first time after all that was read at which a window of each layout begins; None if that is not known.

    >>> from tidewheel._time.windows import Fixed
    >>> hour = 3600 * 10**9
    >>> layouts = [StateLayout("panes", Fixed(n * hour, n * hour, 0)) for n in (1, 3)]
    >>> cut(*layouts, clock=1_772_359_000 * 10**9, disorder=hour // 6).isoformat()
    '2026-03-01T12:00:00+00:00'
    """
    old, new = was.windows, now.windows
    if old is None or new is None or clock is None or old.timezone or new.timezone or old.offset != new.offset:
        return None
    # Records after the clock are on time. If the disorder is unknown, assume that it is less than a window.
    least = clock + (max(old.length, new.length) if disorder is None else disorder + 2)
    every, offset = math.lcm(old.every, new.every), old.offset
    begins = offset + -(-(least - offset) // every) * every
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=begins // 1000)
    except OverflowError:
        return None  # The job has ended: its clock is after all time.
