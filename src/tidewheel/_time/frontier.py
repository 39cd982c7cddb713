"""The progress of time: pure functions from what the tasks saw to the epoch of the whole job.

An *input* is a step that generates epochs, or one partition of it; a partition is called `step/partition`. The job has
one clock: the merged epoch is the minimum over the inputs that are not idle, and it never goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from tidewheel._time.duration import MAX_TIME

FORGOTTEN_AFTER = 24 * 3600 * 10**9
"""How many ns a partition must be idle before it is forgotten: there may be a new one every day, and none ever ends."""


class Frontier(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The progress of one input's time, and how long it has been silent."""

    time: int | None
    """None if it has had no timestamp yet."""
    silent: int | None = None
    """How many ns it was polled without data since its last data; None if it had data in the newest batch."""


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """How long the sources were polled for the data of a batch, in ns.

    For a run that starts this is zero, because it has not polled yet.
    """

    waited: int = 0
    """While the run had nothing else to do."""
    worked: int = 0
    """While the run worked on the previous batch. Sources are polled before and after it, not during it."""


Frontiers = Mapping[str, Frontier]
Seen = Mapping[str, int | None]
"""The latest epoch that one task saw of each input with data, or None if there was none."""


@dataclass(frozen=True)
class Input:
    """A step that generates epochs, and how long it can be silent before it is idle; None: forever."""

    name: str
    idle_after: int | None
    advance_after: int | None = None
    """How long it can be silent before its time advances with the machine's clock; None: it waits for data."""
    whole: bool = False
    """Whether it has no partitions. Partitions of an earlier program are forgotten: they would hold back the clock forever."""

    def time(self, frontier: Frontier) -> int | None:
        """Return the progress of its time."""
        if self.advance_after is None or frontier.time is None:
            return frontier.time
        return min(frontier.time + max(0, (frontier.silent or 0) - self.advance_after), MAX_TIME)

    def is_gone(self, frontier: Frontier) -> bool:
        """Return whether a partition has been idle for so long that it is forgotten."""
        silent, idle_after = frontier.silent, self.idle_after
        return idle_after is not None and silent is not None and silent > idle_after + FORGOTTEN_AFTER

    def is_idle(self, frontier: Frontier) -> bool:
        """Return whether it has been silent for so long that it no longer holds back the clock."""
        return self.idle_after is not None and frontier.silent is not None and frontier.silent > self.idle_after

    def silent(self, frontier: Frontier, asked: Asked) -> Frontier:
        """Return its frontier after a batch without data from it.

        The time that a run worked on the previous batch counts if the input had no data for that batch either: then it
        was polled before and after. By itself this time makes no input idle, however long the batch took.
        """
        if frontier.silent is None:
            return Frontier(frontier.time, asked.waited)
        worked = asked.worked if self.idle_after is None else min(asked.worked, self.idle_after)
        return Frontier(frontier.time, frontier.silent + asked.waited + worked)


def advanced(
    frontiers: Frontiers,
    inputs: Iterable[Input],
    seen: Iterable[Seen],
    asked: Asked | None,
    held: Collection[str] = (),
) -> dict[str, Frontier]:
    """Return the inputs' frontiers after a batch, given what each task saw.

    A new input has not been silent, though it has no epoch yet. If nobody polled for data (None), no input was silent. An
    input is not silent either while a source of it is held back (`held`): it has data that the run does not read.
    Once a step has partitions, only these count. A frontier never goes back; inputs that the program no longer has
    are forgotten, and so are partitions that have been idle for a day. The most advanced partition of each step
    stays: if all are idle, it shows the step's progress.
    """
    known = {each.name: each for each in inputs}
    before = {
        name: frontier
        for name, frontier in frontiers.items()
        if (each := known.get(operator_of(name))) is not None and not ("/" in name and each.whole)
    }
    after = {
        name: frontier
        if asked is None or operator_of(name) in held
        else known[operator_of(name)].silent(frontier, asked)
        for name, frontier in before.items()
    }
    for part in seen:
        for name, time in part.items():
            after[name] = Frontier(_later(after[name].time if name in after else None, time))
    partitioned = {operator_of(name) for name in after if "/" in name}
    for name in known:
        if name in partitioned:
            after.pop(name, None)
        else:
            after.setdefault(name, Frontier(None))
    return _remembered(after, known)


def _remembered(frontiers: dict[str, Frontier], known: Mapping[str, Input]) -> dict[str, Frontier]:
    gone = {
        name
        for name, frontier in frontiers.items()
        if "/" in name and (each := known.get(operator_of(name))) is not None and each.is_gone(frontier)
    }
    if not gone:
        return frontiers
    furthest: dict[str, int | None] = {}
    for name, frontier in frontiers.items():
        operator = operator_of(name)
        furthest[operator] = _later(furthest.get(operator), frontier.time)
    return {
        name: frontier
        for name, frontier in frontiers.items()
        if name not in gone or frontier.time == furthest[operator_of(name)]
    }


def merged(frontiers: Frontiers, inputs: Iterable[Input], last: int | None) -> int | None:
    """Return the epoch of the job: the minimum of the inputs that are not idle, never below the last epoch.

    There is none until each of these inputs has one. If all inputs are idle, the latest counts. An input that has ended
    has the maximum epoch, so it does not hold back the clock.
    """
    known = {each.name: each for each in inputs}
    active: list[int | None] = []
    idle: list[int | None] = []
    for name, frontier in frontiers.items():
        each = known[operator_of(name)]
        (idle if each.is_idle(frontier) else active).append(each.time(frontier))
    if not active:
        # Also if there are no inputs at all.
        return _later(last, max((time for time in idle if time is not None), default=None))
    if any(time is None for time in active):
        return last
    return _later(last, min(time for time in active if time is not None))


def operator_of(name: str) -> str:
    """Return the step of an input."""
    return name.partition("/")[0]


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
