"""Upgrade manifests of format 6, which had the layout of a step's state as text."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec

from tidewheel._state.layout import (
    IDS,
    JOINED_WINDOWS,
    NUMBERS,
    PANES,
    SESSION_MAPS,
    SESSION_ROWS,
    WINDOWS,
    Accumulator,
    Fold,
    StateLayout,
)
from tidewheel._time.windows import Fixed

_OPERATORS, _FORMER, _LAYOUT = 19, 20, 4
_FOLDS = "|".join(get_args(Fold))
_NUMBER = re.compile(rf"({_FOLDS}):(.*?)(?:@([1-9]\d*))?", re.DOTALL)
_FIXED = r"windows of (?P<length>\d+) ns every (?P<every>\d+) ns from (?P<offset>-?\d+)"
_FORMS = {
    PANES: re.compile(rf"panes of {_FIXED}: (?P<numbers>.*)", re.DOTALL),
    SESSION_ROWS: re.compile(r"rows of sessions of (?P<numbers>.*)", re.DOTALL),
    SESSION_MAPS: re.compile(r"sessions of (?P<numbers>.*)", re.DOTALL),
    WINDOWS: re.compile(_FIXED),
    JOINED_WINDOWS: re.compile(rf"both sides of {_FIXED}, as tagged values"),
    IDS: re.compile(r"ids until (?P<after>\d+) ns after their messages"),
    NUMBERS: re.compile(rf"(?P<numbers>(?:{_FOLDS}):.*)", re.DOTALL),
}

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list).decode


def upgraded(body: bytes) -> bytes:
    """Convert a body of format 6 to format 7; raise `msgspec.DecodeError` if it is invalid."""
    fields = _decode(body)
    try:
        for _, info in [*fields[_OPERATORS], *(each for _, infos in fields[_FORMER] for each in infos)]:
            info[_LAYOUT] = layout_of(info[_LAYOUT])
    except (IndexError, TypeError, ValueError, AttributeError) as error:
        raise msgspec.DecodeError(f"the steps are not those of format 6: {error}") from None
    return _encode(fields)


def layout_of(text: str) -> StateLayout:
    """Return the layout that a text describes.

    A text that is not understood becomes a form of its own, which fits no program: the start of the job is refused with
    what to do.

    >>> layout_of("ids until 10 ns after their messages")
    StateLayout(form='ids', windows=None, numbers=(), after=10)
    """
    for form, pattern in _FORMS.items():
        if (found := pattern.fullmatch(text)) is not None:
            layout = _layout(form, found.groupdict())
            return layout if str(layout) == text else StateLayout(text)
    return StateLayout(text)


def _layout(form: str, parts: dict[str, Any]) -> StateLayout:
    length, every, offset = (int(parts.get(name, 0)) for name in ("length", "every", "offset"))
    windows = Fixed(length, every, offset) if "length" in parts else None
    texts = re.split(rf", (?=(?:{_FOLDS}):)", parts["numbers"]) if "numbers" in parts else ()
    numbers = tuple(_number(*found.groups()) for text in texts if (found := _NUMBER.fullmatch(text)) is not None)
    return StateLayout(form, windows, numbers, int(parts["after"]) if "after" in parts else None)


def _number(fold: str, column: str, since: str | None) -> Accumulator:
    return Accumulator(fold, None if fold == "rows" else column, int(since or 0))
