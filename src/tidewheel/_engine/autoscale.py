"""Choose the number of tasks for the next batch (`parallelism="auto"`): a pure rule over the last batches.

The rule measures demand: the seconds of work of all tasks, divided by the elapsed seconds. Demand is the number of tasks that
would be busy all the time. Under a constant load it does not depend on the number of tasks, so a change of that number does not
cause another change. A batch takes as long as its busiest task. Therefore the busiest task counts instead of the average, up to
1.5 times the average: a larger difference comes from single keys with many messages, which more tasks do not speed up.

Three rules:

1. Add tasks if they are busy most of the time, or if data waits long while they work: the new number keeps them busy for about
   two thirds of the time.
2. Remove tasks if they are idle most of the time and no data waits: the new number keeps them busy for two thirds of the time,
   and is at least half of the old one.
3. A number of tasks with which data waited long is not used again until the demand falls.

Several batches in a row must ask for a change, and more of them for removing tasks than for adding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

from tidewheel._core.logs import logger
from tidewheel._engine.report import Report
from tidewheel._engine.work_estimate import longest_of, work_of

_LOG = logger(__name__)

_HIGH, _WANTED, _LOW = 0.8, 0.65, 0.4
"""The share of time that tasks are busy: add tasks above the first, aim at the second, remove tasks below the third."""
_UP_AFTER, _DOWN_AFTER = 2, 6
"""How many batches in a row must ask for more tasks, and for fewer."""
_SKEW = 1.5
_FALLEN = 0.8
"""Demand has fallen if it is below this share of the earlier demand."""

PATIENCE_S = 10.0
"""Data that has waited longer counts as waiting long."""


class Limits(NamedTuple):
    """The smallest and the largest number of tasks."""

    least: int
    most: int


class Load(NamedTuple):
    """One batch."""

    work: float
    """The seconds of work of all its tasks."""
    longest: float
    """The seconds of work of the busiest task of each level, added up."""
    elapsed: float
    """The seconds from the end of the previous batch to the end of this one."""
    tasks: int
    """How many tasks it had: fewer than planned if it was small."""
    waited: float = 0.0
    """How many seconds the oldest unread data has waited; 0 if that is unknown."""


class Scale(NamedTuple):
    """The number of tasks, and the rule's memory of earlier batches."""

    tasks: int
    above: int = 0
    """How many batches in a row asked for more tasks."""
    below: int = 0
    peak: float = 0.0
    """The highest demand of the batches in a row that asked for fewer."""
    too_few: int = 0
    """With so many tasks, data waited for long; 0: with none."""
    demand_then: float = 0.0


def next_scale(scale: Scale, load: Load, limits: Limits, patience: float = PATIENCE_S) -> Scale:
    """Return the number of tasks for the next batch. Pure.

    >>> scale, busy = Scale(2), Load(work=1.9, longest=0.95, elapsed=1.0, tasks=2)
    >>> for _ in range(2):
    ...     scale = next_scale(scale, busy, Limits(1, 8))
    >>> scale.tasks
    3
    """
    busiest = min(load.longest, _SKEW * load.work / scale.tasks)
    # Tasks cannot work for longer than the batch takes; clocks are not exact.
    busy = min(busiest / load.elapsed, 1.0) if load.elapsed > 0 else 0.0
    demand = busy * scale.tasks
    if scale.too_few and demand < _FALLEN * scale.demand_then:
        scale = scale._replace(too_few=0, demand_then=0.0)
    behind = load.waited > patience
    # A batch that is too small for the present tasks gains nothing from more.
    if load.tasks >= scale.tasks and (busy > _HIGH or (behind and busy > _LOW)):
        return _up(scale, demand, limits, waits=behind and busy <= _HIGH)
    if busy < _LOW and not behind:
        return _down(scale, demand, limits)
    return scale._replace(tasks=_within(scale.tasks, limits), above=0, below=0, peak=0.0)


def _up(scale: Scale, demand: float, limits: Limits, *, waits: bool) -> Scale:
    scale = scale._replace(above=scale.above + 1, below=0, peak=0.0)
    if scale.above < _UP_AFTER:
        return scale
    wanted = max(ceil(demand / _WANTED), scale.tasks + 1)
    if waits:
        scale = scale._replace(too_few=scale.tasks, demand_then=demand)
    return scale._replace(tasks=_within(wanted, limits), above=0)


def _down(scale: Scale, demand: float, limits: Limits) -> Scale:
    scale = scale._replace(above=0, below=scale.below + 1, peak=max(scale.peak, demand))
    if scale.below < _DOWN_AFTER:
        return scale
    wanted = max(ceil(scale.peak / _WANTED), scale.tasks // 2, scale.too_few + 1, 1)
    return scale._replace(tasks=_within(min(wanted, scale.tasks), limits), below=0, peak=0.0)


def _within(tasks: int, limits: Limits) -> int:
    return max(limits.least, min(tasks, limits.most))


class AutoScale:
    """Applies the rule to the batches of a run."""

    def __init__(
        self, tasks: int, limits: Callable[[], Limits], patience: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Begin with this number of tasks. Data that has waited for more than `patience` seconds counts as waiting long.

        `limits` is called after each batch, because hosts join and leave.
        """
        self._scale, self._limits, self._patience, self._clock = (
            Scale(_within(tasks, limits())),
            limits,
            patience,
            clock,
        )
        self._since = clock()

    @property
    def tasks(self) -> int:
        """The number of tasks of the next batch."""
        return self._scale.tasks

    def note(self, reports: Sequence[Report], tasks: int, waited: float) -> None:
        """Take a batch that has just ended, the number of its tasks, and how long the oldest unread data has waited."""
        now = self._clock()
        load = Load(work_of(reports), longest_of(reports), now - self._since, tasks, waited)
        self._since = now
        before, self._scale = self._scale, next_scale(self._scale, load, self._limits(), self._patience)
        if before.tasks != self._scale.tasks:
            _LOG.info(
                "%d tasks instead of %d: tasks worked %.2f s in %.2f s, and data waits for %.0f s",
                self._scale.tasks,
                before.tasks,
                load.work,
                load.elapsed,
                waited,
            )
