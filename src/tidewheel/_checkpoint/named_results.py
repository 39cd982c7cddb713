"""Names for the parts of stored aggregates and joins. Reading state runs no user code: the manifest has the names.

Aggregates are stored as a list of numbers, which several of them can share: the mean of a column uses its sum and its
count. The manifest has the numbers' names in the step's layout, and the components of each result among its values.
The states of aggregators are shown as they are stored: the different values of a `count_distinct`.
Joins are stored as lists whose parts depend on the step's kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any

from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._state.codec import BulkCodec, StateCodec, decode_all, encode_all
from tidewheel._state.layout import NUMBERS, PANES, SESSION_ROWS, Accumulator
from tidewheel._state.tagged import decode
from tidewheel._state.type_description import RESULT, Field, StateType

_Named = Callable[[Any], Any]
_Span = Callable[[Any], dict[str, Any]]


def result_fields(results: Mapping[str, str]) -> tuple[Field, ...]:
    """Return results with their components, such as `mean:amount`, in the form of the manifest."""
    return tuple(Field(name, StateType(RESULT, made_of)) for name, made_of in results.items())


def results_of(values: Sequence[Field]) -> dict[str, str]:
    """Return a step's results with their components; an empty dict if it is not an aggregate."""
    return {each.name: each.type.name for each in values if each.type.kind == RESULT}


def with_names(info: OperatorInfo, codec: StateCodec) -> StateCodec:
    """Return a codec that decodes a step's state with named parts; the codec itself if the names are unknown.

    Encoding is unchanged.
    """
    naming = _naming(info)
    return codec if naming is None else _NamedCodec(codec, naming)


class _NamedCodec(BulkCodec):
    def __init__(self, codec: StateCodec, naming: _Named) -> None:
        self._codec, self._naming = codec, naming

    def encode(self, value: Any) -> bytes:
        return self._codec.encode(value)

    def decode(self, data: bytes) -> Any:
        return self._naming(self._codec.decode(data))

    def encode_all(self, values: list[Any]) -> list[bytes | None]:
        return encode_all(self._codec, values)

    def decode_all(self, found: list[bytes | None]) -> list[Any]:
        return list(map(self._naming, decode_all(self._codec, found)))


def _naming(info: OperatorInfo) -> _Named | None:
    """Return a function that names the parts of a key's stored state; None if the manifest does not describe them."""
    if info.kind in _JOINS:
        return _JOINS[info.kind]
    results = results_of(info.values)
    if not results:
        return None
    layout, windows = info.layout, info.layout.windows
    numbers, single = layout.numbers, layout.form == NUMBERS
    if layout.form == PANES and windows is not None:
        before, length, instant = 1, gcd(windows.length, windows.every), windows.instant
        span: _Span = lambda row: {"start": instant(row[0]), "end": instant(row[0] + length)}  # noqa: E731
    elif layout.form == SESSION_ROWS:
        # A stored session has its start, end and status before its numbers.
        before, span = 3, lambda row: {"start": row[0], "end": row[1]}
    elif single:
        before, span = 0, lambda row: {}
    else:
        return None
    named = _of_row(results, numbers, before)
    if named is None:
        return None
    if all(number.is_number for number in numbers):
        return named if single else lambda rows: rows and [span(row) | named(row) for row in rows]
    whole = _with_states(numbers, before)

    def with_states(state: Any) -> Any:
        rows = state and [span(row) | named(row) for row in whole(state)]
        return rows and (rows[0] if single else rows)

    return with_states


def _with_states(numbers: Sequence[Accumulator], before: int) -> Callable[[Any], list[Any]]:
    """Return a function that puts states in the places of their lengths: their bytes follow the rows."""
    places = [before + place for place, number in enumerate(numbers) if not number.is_number]

    def whole(stored: Any) -> list[Any]:
        rows, data = stored
        begin = 0
        for row in rows:
            for place in places:
                end = begin + row[place]
                row[place] = decode(data[begin:end]) if end > begin else None
                begin = end
        return list(rows)

    return whole


def _of_sides(*names: str) -> _Named:
    """Return a function that names the waiting entries of the two sides of a join. Later parts are left to the codec."""

    def named(sides: Any) -> Any:
        if not isinstance(sides, list):
            return sides  # None, or the placeholder for sides that are stored in segments.
        left, right = ([dict(zip(names, entry, strict=True)) for entry in side] for side in sides[:2])
        return {"left": left, "right": right}

    return named


def _of_joined_windows(windows: Any) -> Any:
    return windows and [
        {"start": start, "end": end, "left": left, "right": right} for start, (end, left, right) in windows.items()
    ]


_JOINS: dict[str, _Named] = {
    "interval_join": _of_sides("time", "value", "paired"),
    "as_of_join": _of_sides("time", "value"),
    "window_join": _of_joined_windows,
}
"""The naming functions by the kind of the join."""


def _of_row(results: Mapping[str, str], numbers: Sequence[Accumulator], before: int) -> _Named | None:
    """Return a function that computes results from a row of numbers after `before` other items; None if a number is missing."""
    places = {number.name: before + place for place, number in enumerate(numbers)}
    try:
        made = {name: _result(made_of, places) for name, made_of in results.items()}
    except KeyError:
        return None
    return lambda row: row and {name: result(row) for name, result in made.items()}


def _result(made_of: str, places: Mapping[str, int]) -> _Named:
    """Return a function that computes one result, such as `mean:amount`, from a row.

    The result is None if all values were null.
    """
    kind, _, column = made_of.partition(":")
    if made_of in places and kind not in ("sum", "min", "max"):
        # Counts, and the states of aggregators: only the program can compute their results.
        number = places[made_of]
        return lambda row: row[number]
    present, folded = places[f"count:{column}"], places[f"{'sum' if kind == 'mean' else kind}:{column}"]
    if kind == "mean":
        return lambda row: row[folded] / row[present] if row[present] else None
    return lambda row: row[folded] if row[present] else None
