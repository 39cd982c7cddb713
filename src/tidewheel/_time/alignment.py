"""Which sources wait so that no source runs far ahead of another in event time. Pure.

Messages that are ahead of the job's clock wait in state: in windows, joins and timers. If a source reads years of history
while another reads a live topic, all messages of the topic would wait there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tidewheel._time.frontier import Frontiers, Input, operator_of


class SourceClock(NamedTuple):
    """How far a source is in event time."""

    time: int | None
    """The lowest epoch of its inputs that are not idle; None: one of them has had no timestamp yet."""
    idle: bool = False
    """Whether all its inputs are idle, so that the job's clock does not wait for it either."""


def source_clocks(
    frontiers: Frontiers, inputs: Iterable[Input], clocked: Mapping[str, Collection[str]]
) -> dict[str, SourceClock]:
    """Return the clock of each source. `clocked` has the inputs that each source feeds; a source that feeds none has no clock."""
    known = {each.name: each for each in inputs}
    found: dict[str, tuple[list[int | None], list[int | None]]] = {source: ([], []) for source in clocked}
    for name, frontier in frontiers.items():
        each = known.get(operator_of(name))
        for source, steps in clocked.items() if each is not None else ():
            if each is not None and each.name in steps:
                found[source][each.is_idle(frontier)].append(each.time(frontier))
    return {source: _clock(active, idle) for source, (active, idle) in found.items()}


def _clock(active: list[int | None], idle: list[int | None]) -> SourceClock:
    if not active and idle:
        return SourceClock(max((time for time in idle if time is not None), default=None), idle=True)
    times = [time for time in active if time is not None]
    return SourceClock(min(times) if active and len(times) == len(active) else None)


def leads(clocks: Mapping[str, SourceClock], waiting: Collection[str]) -> dict[str, tuple[int | None, str]]:
    """Return by how many ns each source is ahead of the last one that holds others back, and which that is.

    Only a source with new data (`waiting`) and a clock that is not idle holds others back: an idle or ended source, or one that
    is read to its end, would hold them back for nothing. None: that source has no timestamp yet. A source is never ahead of
    itself, so one of the sources with new data can always be read.

    >>> clocks = {"history": SourceClock(100), "live": SourceClock(900), "plain": SourceClock(None)}
    >>> leads(clocks, {"history", "live"})
    {'live': (800, 'history')}
    >>> leads(clocks, {"live"}), leads(clocks, {"live", "plain"})
    ({}, {'history': (None, 'plain'), 'live': (None, 'plain')})
    """
    holding = [(clocks[name].time, name) for name in sorted(waiting) if name in clocks and not clocks[name].idle]
    if not holding:
        return {}
    last, by = min(holding, key=lambda each: (each[0] is not None, each[0] or 0))
    return {
        name: (None if last is None else clock.time - last, by)
        for name, clock in clocks.items()
        if clock.time is not None and (last is None or clock.time > last)
    }


def held_back(clocks: Mapping[str, SourceClock], waiting: Collection[str], most: int) -> frozenset[str]:
    """Return the sources with new data that are more than `most` ns ahead, and are therefore not read for the next batch.

    >>> sorted(held_back({"history": SourceClock(100), "live": SourceClock(900)}, {"history", "live"}, 500))
    ['live']
    """
    ahead = leads(clocks, waiting)
    return frozenset(name for name in waiting if name in ahead and ((lead := ahead[name][0]) is None or lead > most))
