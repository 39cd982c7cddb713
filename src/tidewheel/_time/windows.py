"""Windows: the time spans that a timestamp belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tidewheel._time.duration import Duration, nanoseconds
from tidewheel.errors import GraphError

if TYPE_CHECKING:
    from tidewheel._time.local_clock import LocalClock

_DAY = 86_400_000_000_000


@dataclass(frozen=True)
class Fixed:
    """Windows of one length that begin every `every` ns: tumbling if the two are equal, otherwise sliding.

    In a time zone, all three are durations on its clocks, which show 24 hours a day also when a day has 23 or 25.
    """

    length: int
    every: int
    offset: int
    timezone: str = ""
    """Empty for UTC."""

    def __post_init__(self) -> None:
        if self.timezone and (self.length % _DAY or self.every % _DAY):
            raise GraphError(
                "windows in a time zone have whole days: clocks that are turned back show some hours twice. For shorter "
                "windows, leave timezone= out"
            )
        if self.timezone:
            _clock(self.timezone)

    @property
    def clock(self) -> LocalClock | None:
        """The clock of their time zone; None for UTC."""
        return _clock(self.timezone) if self.timezone else None

    def __str__(self) -> str:
        """Return their name in layouts of stored state.

        >>> str(tumbling("10 ns"))
        'windows of 10 ns every 10 ns from 0'
        """
        zone = f" in {self.timezone}" if self.timezone else ""
        return f"windows of {self.length} ns every {self.every} ns from {self.offset}{zone}"

    def of(self, time: int) -> list[tuple[int, int]]:
        """Return start and end of each window with a timestamp, the earliest first; the end is exclusive."""
        clock = self.clock
        if clock is not None:
            time = int(clock.local(time))
        last = time - (time - self.offset) % self.every
        first = last - (self.length - 1 - (time - last)) // self.every * self.every
        return [
            (self.instant(start), self.instant(start + self.length)) for start in range(first, last + 1, self.every)
        ]

    def instant(self, local: int) -> int:
        """Return the time at which the clocks of the time zone show a time."""
        return _reached(self.timezone, local) if self.timezone else local


def _clock(timezone: str) -> LocalClock:
    # Tools that read stored state without a time zone start faster without numpy.
    from tidewheel._time.local_clock import local_clock

    return local_clock(timezone)


@lru_cache(10_000)
def _reached(timezone: str, local: int) -> int:
    return int(_clock(timezone).reached(local))


@dataclass(frozen=True)
class Session:
    """Windows that end after `gap` ns without a message."""

    gap: int


Windows = Fixed | Session


def tumbling(length: Duration, *, offset: Duration = "0 s", timezone: str = "") -> Fixed:
    """Return consecutive windows without gaps: each timestamp is in exactly one.

    They begin at multiples of the length since 1970, plus `offset`, in UTC or in a time zone such as "Europe/Berlin".
    Windows in a time zone have whole days, from midnight to midnight there unless an `offset` moves them.

    >>> tumbling("10 ns").of(25)
    [(20, 30)]
    >>> [(start, end)] = tumbling("1 day", timezone="Europe/Berlin").of(1_774_779_000_000_000_000)  # 2026-03-29
    >>> (end - start) // 3_600_000_000_000
    23
    """
    nanos = nanoseconds(length, "the length of a window", 1)
    return Fixed(nanos, nanos, nanoseconds(offset, "the offset of a window") % nanos, timezone)


def sliding(length: Duration, every: Duration, *, offset: Duration = "0 s", timezone: str = "") -> Fixed:
    """Return overlapping windows: one of this length begins every `every`. If `every` exceeds the length, there are gaps.

    `offset` and `timezone` are as in `tumbling`.

    >>> sliding("10 ns", "5 ns").of(12)
    [(5, 15), (10, 20)]
    """
    step = nanoseconds(every, "the step of a window", 1)
    start = nanoseconds(offset, "the offset of a window") % step
    return Fixed(nanoseconds(length, "the length of a window", 1), step, start, timezone)


def session(gap: Duration) -> Session:
    """Return windows that grow while messages are less than `gap` apart, and end `gap` after the last message."""
    return Session(nanoseconds(gap, "the gap of a session", 1))
