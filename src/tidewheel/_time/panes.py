"""Panes: the segments that windows of one length consist of. All timestamps of a pane are in the same windows.

Pure functions over arrays: a pane is identified by its start, and per-pane numbers determine the content of each
window. The starts of panes and windows are on the clock of the windows' time zone; timestamps and epochs are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from tidewheel._time.windows import Fixed
from tidewheel.errors import GraphError

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FAR = 4_000_000_000_000_000_000
"""The maximum distance of a timestamp from 1970 in ns, so that differences and window ends fit in 64 bits."""
_LONG = 1_000_000_000_000_000_000


def far_times(times: Ints) -> Flags:
    """Return which timestamps are too far from 1970."""
    return (times <= -FAR) | (times >= FAR)


def no_longer_than(nanoseconds: int, what: str) -> None:
    """Raise for durations that, added to a timestamp, may exceed 64 bits."""
    if nanoseconds > _LONG:
        raise GraphError(f"{what} must be at most {_LONG} ns together")


@dataclass(frozen=True)
class Panes:
    """The panes of windows that accept messages up to `lateness` after their end."""

    windows: Fixed
    lateness: int

    def __post_init__(self) -> None:
        no_longer_than(
            self.windows.length + self.windows.every + self.lateness, "length, step and allowed lateness of a window"
        )

    @property
    def length(self) -> int:
        """The length of a pane: the greatest common divisor of length and step."""
        return gcd(self.windows.length, self.windows.every)

    def of(self, times: Ints) -> Ints:
        """Return the start of each timestamp's pane; no timestamp may be too far from 1970."""
        clock = self.windows.clock
        times = times if clock is None else clock.local(times)
        return times - (times - self.windows.offset) % self.length

    def over(self, panes: Ints, epoch: int | None) -> Flags:
        """Return which panes are in no window that is open, or accepts late messages, at an epoch."""
        gaps = panes - self._last(panes) >= self.windows.length
        return gaps if epoch is None else gaps | (self.dropped(panes) <= epoch)

    def dropped(self, panes: Ints) -> Ints:
        """Return the time at which the last window of a pane closes for late messages."""
        return self._instants(self._last(panes) + (self.windows.length - 1 + self.lateness))

    def spans(self, starts: Ints) -> tuple[Ints, Ints]:
        """Return when windows begin and end, given their starts; the end is exclusive."""
        clock, ends = self.windows.clock, starts + self.windows.length
        return (starts, ends) if clock is None else (clock.reached(starts), clock.reached(ends))

    def due(self, panes: Ints, after: Ints | int | None, until: int) -> tuple[Ints, Ints]:
        """Return the windows that end after one epoch, which can differ by pane, and not after another.

        They are given as the positions of their panes, and their starts.
        """
        windows, last = self.windows, self._last(panes)
        oldest = self._oldest(panes, last, after)
        newest = np.maximum(
            0, -((self._clipped(panes, self._local(until)) - windows.length + 1 - last) // windows.every)
        )
        counts = np.maximum(0, oldest - newest + 1)
        positions = np.repeat(np.arange(len(panes)), counts)
        # How many steps each window of a pane is before the pane's last one: newest, newest + 1 and so on.
        steps = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts) + newest[positions]
        return positions, last[positions] - steps * windows.every

    def is_open(self, panes: Ints, after: int | None) -> Flags:
        """Return which panes are in a window that ends after an epoch."""
        return self._oldest(panes, self._last(panes), after) >= 0

    def next(self, panes: Ints, after: int | None) -> Ints:
        """Return the first time above `after` at which a window of each pane ends, or the pane is dropped."""
        last = self._last(panes)
        oldest = self._oldest(panes, last, after)
        ends = last - oldest * self.windows.every + (self.windows.length - 1)
        return np.where(oldest >= 0, self._instants(ends), self.dropped(panes))

    def _local(self, epoch: Ints | int) -> Ints | int:
        """Return the last local time that clocks show before the time after an epoch."""
        clock = self.windows.clock
        return epoch if clock is None else clock.local(np.clip(epoch, -FAR - _LONG, FAR + _LONG) + 1) - 1

    def _instants(self, times: Ints) -> Ints:
        """Return, for times on the windows' clock, the first epochs whose local time is not before them."""
        clock = self.windows.clock
        return times if clock is None else clock.reached(times + 1) - 1

    def _last(self, panes: Ints) -> Ints:
        """Return the start of the last window of each pane."""
        return panes - (panes - self.windows.offset) % self.windows.every

    def _oldest(self, panes: Ints, last: Ints, after: Ints | int | None) -> Ints:
        """Return how many steps before its last window each pane's first window after an epoch starts; -1 if none."""
        first = (self.windows.length - 1 - (panes - last)) // self.windows.every
        if after is None or not len(panes):
            return first
        ended = last - (self._clipped(panes, self._local(after)) - self.windows.length + 2)
        oldest: Ints = np.minimum(first, np.maximum(-1, ended // self.windows.every))
        return oldest

    def _clipped(self, panes: Ints, epoch: Ints | int) -> Ints:
        """Return the epoch, limited to the neighbourhood of these panes with the same effect."""
        reach = self.windows.length + self.windows.every
        clipped: Ints = np.clip(epoch, panes - reach, panes + reach)
        return clipped
