"""Windows: the time spans that a timestamp belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel._time.duration import Duration, nanoseconds


@dataclass(frozen=True)
class Fixed:
    """Windows of one length that begin every `every` ns: tumbling if the two are equal, otherwise sliding."""

    length: int
    every: int
    offset: int

    def __str__(self) -> str:
        """Return their name in layouts of stored state.

        >>> str(tumbling("10 ns"))
        'windows of 10 ns every 10 ns from 0'
        """
        return f"windows of {self.length} ns every {self.every} ns from {self.offset}"

    def of(self, time: int) -> list[tuple[int, int]]:
        """Return start and end of each window with a timestamp, the earliest first; the end is exclusive."""
        last = time - (time - self.offset) % self.every
        first = last - (self.length - 1 - (time - last)) // self.every * self.every
        return [(start, start + self.length) for start in range(first, last + 1, self.every)]


@dataclass(frozen=True)
class Session:
    """Windows that end after `gap` ns without a message."""

    gap: int


Windows = Fixed | Session


def tumbling(length: Duration, *, offset: Duration = "0 s") -> Fixed:
    """Return consecutive windows without gaps: each timestamp is in exactly one.

    They begin at multiples of the length since 1970 UTC, plus `offset`.

    >>> tumbling("10 ns").of(25)
    [(20, 30)]
    """
    nanos = nanoseconds(length, "the length of a window", 1)
    return Fixed(nanos, nanos, nanoseconds(offset, "the offset of a window") % nanos)


def sliding(length: Duration, every: Duration, *, offset: Duration = "0 s") -> Fixed:
    """Return overlapping windows: one of this length begins every `every`. If `every` exceeds the length, there are gaps.

    >>> sliding("10 ns", "5 ns").of(12)
    [(5, 15), (10, 20)]
    """
    step = nanoseconds(every, "the step of a window", 1)
    return Fixed(nanoseconds(length, "the length of a window", 1), step, nanoseconds(offset, "the offset") % step)


def session(gap: Duration) -> Session:
    """Return windows that grow while messages are less than `gap` apart, and end `gap` after the last message."""
    return Session(nanoseconds(gap, "the gap of a session", 1))
