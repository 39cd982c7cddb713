"""Windows: which stretches of time a timestamp belongs to. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel._time.duration import Duration, nanoseconds


@dataclass(frozen=True)
class Fixed:
    """Windows of one length that begin every `every` ns: tumbling where the two are equal, else sliding."""

    length: int
    every: int
    offset: int

    def __str__(self) -> str:
        """Return them as layouts of stored state name them.

        >>> str(tumbling("10 ns"))
        'windows of 10 ns every 10 ns from 0'
        """
        return f"windows of {self.length} ns every {self.every} ns from {self.offset}"

    def of(self, time: int) -> list[tuple[int, int]]:
        """Return start and end of each window that holds a timestamp, the earliest first; the end is not part of it."""
        last = time - (time - self.offset) % self.every
        first = last - (self.length - 1 - (time - last)) // self.every * self.every
        return [(start, start + self.length) for start in range(first, last + 1, self.every)]


@dataclass(frozen=True)
class Session:
    """Windows that end when nothing has come for `gap` ns."""

    gap: int


Windows = Fixed | Session


def tumbling(length: Duration, *, offset: Duration = "0 s") -> Fixed:
    """Return windows that follow one another without a break: each timestamp is in one of them.

    They begin at multiples of the length since 1970 UTC, `offset` later.

    >>> tumbling("10 ns").of(25)
    [(20, 30)]
    """
    nanos = nanoseconds(length, "the length of a window", 1)
    return Fixed(nanos, nanos, nanoseconds(offset, "the offset of a window") % nanos)


def sliding(length: Duration, every: Duration, *, offset: Duration = "0 s") -> Fixed:
    """Return windows that overlap: one of this length begins every `every`. One that is longer than the length leaves gaps.

    >>> sliding("10 ns", "5 ns").of(12)
    [(5, 15), (10, 20)]
    """
    step = nanoseconds(every, "the step of a window", 1)
    return Fixed(nanoseconds(length, "the length of a window", 1), step, nanoseconds(offset, "the offset") % step)


def session(gap: Duration) -> Session:
    """Return windows that grow while messages come less than `gap` apart, and end `gap` after the last of them."""
    return Session(nanoseconds(gap, "the gap of a session", 1))
