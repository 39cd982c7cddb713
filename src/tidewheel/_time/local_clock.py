"""LocalClock: the time that the clocks of a time zone show, as a function that never goes back. Pure.

When clocks are turned back, they show an hour twice. Here the local time stands still while the hour is repeated; when
clocks are turned forward, it jumps. So windows over local time are intervals of real time, without gaps or overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from tidewheel.errors import GraphError

Ints = npt.NDArray[np.int64]

_SECOND = 1_000_000_000
_FIRST, _LAST = 1840, 2100
"""The years of a clock's table, which has all times that windows accept. Outside, the first or last offset holds."""
_REACH = 8_000_000_000_000_000_000
"""The times that can be converted, in ns from 1970: times outside count as infinitely far."""


@dataclass(frozen=True, eq=False)
class LocalClock:
    """The offsets of a time zone, and since when each of them holds, in ns. The first one has always held."""

    begins: Ints
    offsets: Ints
    _shown: Ints = field(init=False)
    """The local time just before each offset."""

    def __post_init__(self) -> None:
        before = np.concatenate([self.offsets[:1], self.offsets[:-1]])
        object.__setattr__(self, "_shown", self.begins + before - 1)

    def local(self, times: Ints | int) -> Ints:
        """Return the local time at each time: the latest that clocks have shown until then.

        >>> berlin = local_clock("Europe/Berlin")
        >>> times = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1, 2)]
        >>> shown = berlin.local(np.array([int(time.timestamp()) for time in times]) * _SECOND)
        >>> [str(datetime.fromtimestamp(time // _SECOND, UTC).time()) for time in shown.tolist()]
        ['02:30:00', '02:59:59', '03:30:00']
        """
        clipped = np.clip(np.asarray(times, np.int64), -_REACH, _REACH)
        at = np.searchsorted(self.begins, clipped, "right") - 1
        local: Ints = np.maximum(clipped + self.offsets[at], self._shown[at])
        return local

    def reached(self, local: Ints | int) -> Ints:
        """Return the first time at which clocks have shown each local time, or a later one."""
        clipped = np.clip(np.asarray(local, np.int64), -_REACH, _REACH)
        at = np.searchsorted(self._shown, clipped, "left") - 1
        times: Ints = np.maximum(clipped - self.offsets[at], self.begins[at])
        return times


@lru_cache
def local_clock(zone: str) -> LocalClock:
    """Return the clock of a time zone, such as "Europe/Berlin"."""
    try:
        info = ZoneInfo(zone)
    except (
        KeyError,
        ValueError,
        OSError,
    ):  # `ZoneInfo` raises these for unknown names, and for names that are no paths.
        raise GraphError(
            f"there is no time zone {zone!r}; names are such as 'Europe/Berlin' or 'America/New_York'"
        ) from None

    def offset(second: int) -> int:
        return (datetime.fromtimestamp(second, info).utcoffset() or timedelta()) // timedelta(seconds=1)

    first, last = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (_FIRST, _LAST))
    begins, offsets = [-_REACH // _SECOND - 3 * 86_400], [offset(first)]
    # No zone has changed its offset twice within a day.
    for end in range(first + 86_400, last, 86_400):
        if offset(end) != offsets[-1]:
            begin = end - 86_400
            while end - begin > 1:
                middle = (begin + end) // 2
                begin, end = (middle, end) if offset(middle) == offsets[-1] else (begin, middle)
            begins.append(end)
            offsets.append(offset(end))
    return LocalClock(np.array(begins, np.int64) * _SECOND, np.array(offsets, np.int64) * _SECOND)
