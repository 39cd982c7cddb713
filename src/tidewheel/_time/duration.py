"""Durations and instants: what a user may write, and the integer nanoseconds that everything else works with."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction

from tidewheel.errors import GraphError, OperatorError

Duration = int | datetime.timedelta | str
"""Nanoseconds, a `timedelta`, or text such as "90 s" or "1.5 hours"."""

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
    """Return a duration in ns, or say what is wrong with it.

    >>> nanoseconds(datetime.timedelta(seconds=2), "the bound"), nanoseconds("1.5 min", "the bound")
    (2000000000, 90000000000)
    """
    if isinstance(duration, str):
        duration = _of_text(duration, what)
    if isinstance(duration, datetime.timedelta):
        duration = duration // _MICROSECOND * 1000
    if isinstance(duration, bool) or not isinstance(duration, int):
        raise GraphError(
            f"{what} is a timedelta, text such as '90 s', or a whole number of nanoseconds, not {duration!r}"
        )
    if duration < least:
        raise GraphError(f"{what} must be at least {least} ns, not {duration}")
    if duration >= _MAX:
        raise GraphError(f"{what} is too long: a duration has at most {_MAX - 1} ns, about 292 years, not {duration}")
    return duration


def _of_text(text: str, what: str) -> int:
    parts = _TEXT.fullmatch(text)
    if parts is None or parts[2] not in _UNITS:
        raise GraphError(
            f"{what} cannot be read from {text!r}; write it as '250 ms', '90 s', '5 min', '1 hour' or '7 days'"
        )
    return int(Fraction(parts[1]) * _UNITS[parts[2]])


def instant(time: int | datetime.datetime) -> int:
    """Return a timestamp in ns since 1970 UTC; a `datetime` without a time zone is taken as UTC.

    The last number of 64 bits is no timestamp: as an epoch it means that all time is over.
    """
    if isinstance(time, datetime.datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
        time = (aware - _EPOCH) // _MICROSECOND * 1000
    if isinstance(time, bool) or not isinstance(time, int):
        raise OperatorError(f"a timestamp is an int, ns since 1970 UTC, or a datetime, not {time!r}")
    if not _MIN <= time < _MAX:
        raise OperatorError(f"the timestamp {time} does not fit in 64 bits")
    return time
