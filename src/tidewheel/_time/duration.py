"""Durations and instants: the forms that users write, and the integer nanoseconds used internally."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import Any, Literal

from tidewheel.errors import GraphError, StepError

Duration = datetime.timedelta | str
"""A `timedelta`, or text such as "90 s" or "1.5 hours". A bare number would have no unit."""

_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_UNITS = {
    unit: size
    for size, units in {
        1: ("ns", "nanosecond", "nanoseconds"),
        10**3: ("us", "microsecond", "microseconds"),
        10**6: ("ms", "millisecond", "milliseconds"),
        10**9: ("s", "sec", "second", "seconds"),
        60 * 10**9: ("min", "minute", "minutes"),
        3600 * 10**9: ("h", "hour", "hours"),
        86400 * 10**9: ("d", "day", "days"),
        7 * 86400 * 10**9: ("week", "weeks"),
    }.items()
    for unit in units
}

_MICROSECOND = datetime.timedelta(microseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MIN, _MAX = -(2**63), 2**63 - 1

MAX_TIME = _MAX
"""The epoch that ends a bounded run: later than every timestamp."""


def nanoseconds(duration: Duration, what: str, least: int = 0) -> int:
    """Return a duration in ns; raise if it is invalid.

    >>> nanoseconds(datetime.timedelta(seconds=2), "the bound"), nanoseconds("1.5 min", "the bound")
    (2000000000, 90000000000)
    """
    if isinstance(duration, str):
        nanos = _of_text(duration, what)
    elif isinstance(duration, datetime.timedelta):
        nanos = duration // _MICROSECOND * 1000
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        raise GraphError(
            f"{what} is {duration!r}, a number without a unit; write '{duration} s', '{duration} ms' or the like, or a timedelta"
        )
    else:
        raise GraphError(f"{what} is a timedelta or text such as '90 s', not {duration!r}")
    if nanos < least:
        raise GraphError(f"{what} must be at least {least} ns, not {duration!r}")
    if nanos >= _MAX:
        raise GraphError(f"{what} is too long: a duration has at most {_MAX - 1} ns, about 292 years, not {duration!r}")
    return nanos


def seconds(duration: Duration, what: str, least: int = 0) -> float:
    """Return a duration in seconds; raise if it is invalid. `least` is in ns.

    >>> seconds("250 ms", "the wait")
    0.25
    """
    return nanoseconds(duration, what, least) / 1e9


def seconds_or_none(duration: Duration | None, what: str) -> float | None:
    """Return a duration in seconds; None stays None, for a wait without a limit."""
    return None if duration is None else seconds(duration, what)


def _of_text(text: str, what: str) -> int:
    parts = _TEXT.fullmatch(text)
    if parts is None or parts[2] not in _UNITS:
        raise GraphError(
            f"{what} cannot be read from {text!r}; write it as '250 ms', '90 s', '5 min', '1 hour' or '7 days'"
        )
    return int(Fraction(parts[1]) * _UNITS[parts[2]])


def moment(time: int) -> datetime.datetime:
    """Return a timestamp in ns as a `datetime` in UTC, truncated to microseconds.

    It accepts 64-bit timestamps: the years 1678 to 2262.

    >>> moment(1_500_000_000_000_000_000).isoformat()
    '2017-07-14T02:40:00+00:00'
    """
    return _EPOCH + datetime.timedelta(microseconds=time // 1000)


Unit = Literal["s", "ms", "us", "ns"]
"""The unit of integer times, counted since 1970 UTC."""
UNITS: dict[Unit, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NAMES: dict[Unit, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_FROM, _UNTIL = (
    (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) - _EPOCH) // _MICROSECOND * 1000 for year in (1990, 2100)
)


def is_plausible(time: int, unit: Unit = "ns") -> bool:
    """Return whether an integer in this unit is a plausible time for records of today's systems.

    >>> is_plausible(1_767_225_600_000), is_plausible(1_767_225_600_000, "ms")
    (False, True)
    """
    return _FROM <= time * UNITS[unit] < _UNTIL


def without_unit(time: int, column: str | None = None) -> StepError:
    """Return the error for an integer time without a unit that is not plausible in nanoseconds."""
    where = "" if column is None else f" in column {column!r}"
    guess = next((unit for unit in UNITS if is_plausible(time, unit)), None)
    looks = "" if guess is None else f"these look like {_NAMES[guess]}: "
    units = "'s', 'ms', 'us' or 'ns'" if guess is None else repr(guess)
    return StepError(
        f"the timestamp {time}{where} has no unit, and in nanoseconds since 1970 it is in the year {moment(time).year}; "
        f"{looks}name it in assign_timestamps, unit={units}"
    )


def in_ns(time: Any) -> Any:
    """Return a datetime in ns, and anything else unchanged."""
    return instant(time) if isinstance(time, datetime.datetime) else time


def instant(time: int | datetime.datetime) -> int:
    """Return a timestamp in ns since 1970 UTC; a `datetime` without a time zone is taken as UTC.

    The largest 64-bit number is not a timestamp: as an epoch it means the end of time.
    """
    if isinstance(time, datetime.datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
        time = (aware - _EPOCH) // _MICROSECOND * 1000
    if isinstance(time, bool) or not isinstance(time, int):
        raise StepError(f"a timestamp is an int, ns since 1970 UTC, or a datetime, not {time!r}")
    if not _MIN <= time < _MAX:
        raise StepError(f"the timestamp {time} does not fit in 64 bits")
    return time
