"""DueTimes: the time of the next timer of each shard, so that a batch opens only the shards with due timers.

A run learns these times from its tasks' reports and keeps them in memory. They only save time: a table or a shard without a
known time counts as due, so a run's first batch looks through all shards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from tidewheel._engine.report import Report
from tidewheel._state.timers import NEVER
from tidewheel._time.duration import MAX_TIME

_UNKNOWN = -NEVER - 1
"""Before any time: an unknown shard counts as due."""

_Times = npt.NDArray[np.int64]


class DueTimes:
    """By table of timers and clock, a time for each shard before which nothing is due there."""

    def __init__(self, n_shards: int) -> None:
        """Begin with nothing known."""
        self._n_shards = n_shards
        self._sequence: int | None = None
        self._times: dict[str, tuple[_Times, _Times]] = {}

    def take(self, base: int, shards: Collection[int], sequence: int, reports: Iterable[Report]) -> None:
        """Learn the times in the reports of commit `sequence`; `base` is the commit before it, `shards` its shards with state.

        Earlier times stay valid only if they are of the base: a commit of another run may have set timers.
        """
        if base != self._sequence:
            self._times.clear()
        self._sequence = sequence
        for report in reports:
            for table, due in report.timers.items():
                if table not in self._times:
                    self._times[table] = self._begin(shards), self._begin(shards)
                event, wall = self._times[table]
                for shard, (next_event, next_wall) in due.items():
                    event[shard], wall[shard] = next_event, next_wall

    def _begin(self, shards: Collection[int]) -> _Times:
        times = np.full(self._n_shards, NEVER, np.int64)
        times[list(shards)] = _UNKNOWN
        return times

    def awake(
        self, base: int, epoch: int | None, now: int, behind: Mapping[int, int | None]
    ) -> dict[str, frozenset[int]]:
        """Return the shards of each known table in which something may be due in a batch over the commit `base`.

        `epoch` is the highest that the steps will have got, `now` the batch's time. A shard that is behind has an epoch
        of its own, so it is always among them.
        """
        if base != self._sequence:
            return {}
        # No time passes after the end of a bounded run: everything that waits for the clock is due with its last epoch.
        clock = MAX_TIME if epoch == MAX_TIME else now
        found = {}
        for table, (event, wall) in self._times.items():
            due = wall <= clock
            if epoch is not None:
                due |= event <= epoch
            found[table] = frozenset(np.flatnonzero(due | (event == _UNKNOWN)).tolist()) | behind.keys()
        return found
