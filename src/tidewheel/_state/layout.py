"""Describe how a step stores the state of a key, as plain data, which a manifest records.

A program that would store it in another way is detected, and tools can read what a step without user code has stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, get_args

import msgspec

from tidewheel._time.windows import Fixed

Fold = Literal["sum", "min", "max", "count", "rows"]
"""The folds of numbers."""
_FOLDS = frozenset(get_args(Fold))

NUMBERS, PANES, SESSION_ROWS, SESSION_MAPS = "numbers", "panes", "session rows", "session maps"
WINDOWS, SESSIONS, JOINED_WINDOWS, IDS = "windows", "sessions", "joined windows", "ids"
_TEXTS = {
    NUMBERS: "{numbers}",
    PANES: "panes of {windows}: {numbers}",
    SESSION_ROWS: "rows of sessions of {numbers}",
    SESSION_MAPS: "sessions of {numbers}",
    WINDOWS: "{windows}",
    JOINED_WINDOWS: "both sides of {windows}, as tagged values",
    IDS: "ids until {after} after their messages",
}
_DESCRIPTIONS = {
    PANES: "aggregates of {windows}",
    SESSION_ROWS: "aggregates of sessions",
    SESSION_MAPS: "aggregates of sessions",
    WINDOWS: "folded {windows}",
    SESSIONS: "folded sessions",
}


class Accumulator(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One number or state per key that partial results are merged into.

    `rows` counts messages, `count` the values of a column that are not null; the other numbers fold a column. Any other
    fold is the name of an aggregator, whose states have any size.
    """

    fold: str
    column: str | None = None
    since: int = 0
    """The change of the program that added it; the numbers of one change have counted the same messages."""
    options: str = ""
    """The parameters and further columns on which the states of an aggregator depend."""
    where: str = ""
    """The condition of the messages that it folds; empty for all."""

    @property
    def name(self) -> str:
        """The name of its column in partial results."""
        return number_name(self.fold, self.column, self.since, self.options, self.where)

    @property
    def is_number(self) -> bool:
        """Whether it is a number, and not the state of an aggregator."""
        return self.fold in _FOLDS

    @property
    def present(self) -> Accumulator:
        """The number of values folded into this accumulator."""
        return Accumulator("count", self.column, self.since, "", self.where)

    def __str__(self) -> str:
        where = f" where {self.where}" if self.where else ""
        return f"the count of messages{where}" if self.column is None else f"the {self.fold} of {self.column!r}{where}"


class StateLayout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How the state of a key is stored. The fields besides `form` are set where the form has them."""

    form: str = ""
    """One of the forms above, or a text of the step's own; empty for a plain state."""
    windows: Fixed | None = None
    numbers: tuple[Accumulator, ...] = ()
    """The numbers and states of each stored aggregate, in their order."""
    after: int | None = None
    """The ns from a message to the time that is stored for its id."""

    def __str__(self) -> str:
        """Return a short text, which is the same in every version of Tidewheel.

        >>> str(StateLayout(NUMBERS, numbers=(Accumulator("count", "x"), Accumulator("sum", "x", 1))))
        'count:x, sum:x@1'
        """
        return self._text(_TEXTS, str(self.windows), f"{self.after} ns")

    def describe(self) -> str:
        """Return a text for people, with durations as hours, minutes and seconds.

        >>> StateLayout(WINDOWS, Fixed(5400 * 10**9, 5400 * 10**9, 0)).describe()
        'folded windows of 1:30:00'
        >>> StateLayout(PANES, Fixed(60 * 10**9, 10, 5), (Accumulator("rows"),)).describe()
        'aggregates of windows of 0:01:00 every 10 ns from 5 ns'
        """
        windows = "" if self.windows is None else _spelled(self.windows)
        after = "" if self.after is None else _span(self.after)
        return self._text(_TEXTS | _DESCRIPTIONS, windows, after)

    def _text(self, texts: Mapping[str, str], windows: str, after: str) -> str:
        if self.form not in texts:
            return self.form
        numbers = ", ".join(number.name for number in self.numbers)
        return texts[self.form].format(windows=windows, numbers=numbers, after=after)


def number_name(kind: str, column: str | None, since: int, options: str = "", where: str = "") -> str:
    """Return the name of a number, such as `sum:amount`, or `count:amount@1` for one that came with the first change.

    >>> number_name("top", "amount", 1, "3", "(paid == true)")
    'top:amount(3) where (paid == true)@1'
    """
    given = (f"({options})" if options else "") + (f" where {where}" if where else "")
    return f"{kind}:{column or ''}{given}{f'@{since}' if since else ''}"


def _spelled(windows: Fixed) -> str:
    every = "" if windows.every == windows.length else f" every {_span(windows.every)}"
    offset = f" from {_span(windows.offset)}" if windows.offset else ""
    zone = f" in {windows.timezone}" if windows.timezone else ""
    return f"windows of {_span(windows.length)}{every}{offset}{zone}"


def _span(nanoseconds: int) -> str:
    whole = nanoseconds % 1000 == 0
    return str(timedelta(microseconds=nanoseconds // 1000)) if whole else f"{nanoseconds} ns"
