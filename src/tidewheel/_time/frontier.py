"""How far time has come: pure functions from what the tasks saw to the epoch of the whole job.

An *input* is an operator that generates epochs, or one partition of it; a partition is called `operator/partition`. The job has
one clock: the merged epoch is the minimum over the inputs that are not idle, and it never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from tidewheel._time.duration import MAX_TIME


class Frontier(msgspec.Struct, frozen=True, array_like=True):
    """How far one input's time has come (`None`: no timestamp yet), and the `now` when it last gave data."""

    time: int | None
    active_at: int


Frontiers = Mapping[str, Frontier]
Seen = Mapping[str, int | None]
"""What one task saw of each input that gave it data: the latest epoch, or None if there was none among it."""


@dataclass(frozen=True)
class Input:
    """An operator that generates epochs, and how long it may be silent before it counts as idle; None: for ever."""

    name: str
    idle_after: int | None
    advance_after: int | None = None
    """How long it may be silent before its time goes on as the clock does; None: it stands still until there is data."""

    def time(self, frontier: Frontier, now: int) -> int | None:
        """Return how far its time has come by now."""
        if self.advance_after is None or frontier.time is None:
            return frontier.time
        return min(frontier.time + max(0, now - frontier.active_at - self.advance_after), MAX_TIME)


def advanced(frontiers: Frontiers, inputs: Iterable[Input], seen: Iterable[Seen], now: int) -> dict[str, Frontier]:
    """Return the inputs' frontiers after a batch that the tasks saw these parts of.

    An input that is met first is active now, though it has no epoch yet. Once an operator has partitions, only they
    count. A frontier never goes back; inputs that the program no longer has are forgotten.
    """
    names = {each.name for each in inputs}
    after = {name: frontier for name, frontier in frontiers.items() if operator_of(name) in names}
    for part in seen:
        for name, time in part.items():
            before = after[name].time if name in after else None
            after[name] = Frontier(_later(before, time), now)
    partitioned = {operator_of(name) for name in after if "/" in name}
    for name in names:
        if name in partitioned:
            after.pop(name, None)
        else:
            after.setdefault(name, Frontier(None, now))
    return after


def merged(frontiers: Frontiers, inputs: Iterable[Input], now: int, last: int | None) -> int | None:
    """Return the epoch of the job: the least of the inputs that are not idle, never below the last.

    There is none until each of them has one. When all are idle, nobody holds anybody back, and the latest counts. An input that
    has ended has the epoch after all time, so it holds nothing back either.
    """
    known = {each.name: each for each in inputs}
    active: list[int | None] = []
    idle: list[int | None] = []
    for name, frontier in frontiers.items():
        each = known[operator_of(name)]
        resting = each.idle_after is not None and now - frontier.active_at > each.idle_after
        (idle if resting else active).append(each.time(frontier, now))
    if not active:
        # Also where there are no inputs at all.
        return _later(last, max((time for time in idle if time is not None), default=None))
    if any(time is None for time in active):
        return last
    return _later(last, min(time for time in active if time is not None))


def operator_of(name: str) -> str:
    """Return the operator that an input belongs to."""
    return name.partition("/")[0]


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
