"""Windows: the time spans that a timestamp belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True)
class Counted:
    """Windows of `length` messages of a key; one begins with every `every`-th message."""

    length: int
    every: int

    def __str__(self) -> str:
        """Return their name in layouts of stored state.

        >>> str(counted(10, every=2))
        'windows of 10 messages every 2'
        """
        return f"windows of {self.length} messages every {self.every}"


@dataclass(frozen=True)
class Triggered:
    """Windows that end with the message for which a function is true, or `timeout` ns after their first message."""

    closes: Callable[[Any, Any], Any]
    timeout: int | None


Windows = Fixed | Session | Counted | Triggered


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


def counted(length: int, *, every: int | None = None) -> Counted:
    """Return windows of this many messages of a key, in the order in which they arrive, whatever their timestamps.

    With `every`, windows overlap: the last `length` messages are emitted after every `every` messages. The first of
    these windows have fewer messages.

    >>> counted(100)
    Counted(length=100, every=100)
    """
    step = length if every is None else every
    for what, number in (("a counted window", length), ("every=", step)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise GraphError(f"{what} takes a number of messages, at least 1, not {number!r}")
    if step > length:
        raise GraphError(f"every={step} exceeds the {length} messages of a window: some messages would be in no window")
    return Counted(length, step)


def triggered(closes: Callable[[Any, Any], Any], *, timeout: Duration | None = None) -> Triggered:
    """Return windows without a fixed length: each key has one window, which ends when your function says so.

    - `closes`: called after each message with the folded value, which includes the message, and the message's value. If
      it returns a true value, the window is emitted, and the next message begins a new one.
    - `timeout`: also end a window this long after its earliest timestamp.

    >>> triggered(lambda total, order: total >= 1000, timeout="1 hour").timeout
    3600000000000
    """
    if not callable(closes):
        raise GraphError(f"triggered takes a function of the folded value and a value, not {closes!r}")
    return Triggered(closes, None if timeout is None else nanoseconds(timeout, "the timeout of a window", 1))
