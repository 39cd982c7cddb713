"""Values kept in state: msgpack has no rows, tuples or records, so they are marked when they go in and made again after.

Every value that an operator keeps goes this way, also within one batch: what comes out must not depend on whether a commit lay
between.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import msgspec

from tidewheel._values import Shape
from tidewheel._values.row import Row, row_class
from tidewheel.errors import OperatorError

_PLAIN = (str, int, float, bytes, bool, type(None), datetime.datetime)
_MARK = "~"


class StateValues:
    """How the values of one stream go into state and come out again."""

    def __init__(self, shape: Shape) -> None:
        """Take what the stream's values look like: a declared record comes out as that record."""
        self.record = shape.type if shape.kind == "record" else None

    def put(self, value: Any) -> Any:
        """Return what is stored for a value."""
        if self.record is not None:
            return msgspec.to_builtins(value, builtin_types=(bytes, datetime.datetime, datetime.date))
        return _marked(value)

    def get(self, stored: Any) -> Any:
        """Return the value that was stored."""
        if self.record is not None:
            return msgspec.convert(stored, self.record)
        return _unmarked(stored)


def _marked(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Row):
        return {_MARK: "row", "columns": list(value._columns), "values": [_marked(item) for item in value]}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {_MARK: "tuple", "values": [_marked(item) for item in value]}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    if isinstance(value, dict):
        items = [[_marked(key), _marked(item)] for key, item in value.items()]
        return {_MARK: "dict", "values": items}
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        raise OperatorError(
            f"a {type(value).__name__} must wait in state, and nobody declared it: give returns={type(value).__name__} to the "
            "operator that makes it, or value= to the source"
        )
    raise OperatorError(f"{value!r} of type {type(value).__name__} cannot wait in state; use built-in types or records")


def _unmarked(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_unmarked(item) for item in stored]
    if not isinstance(stored, dict):
        return stored
    kind, values = stored[_MARK], stored["values"]
    if kind == "row":
        return row_class(tuple(stored["columns"]))(*map(_unmarked, values))
    if kind == "tuple":
        return tuple(map(_unmarked, values))
    return {_unmarked(key): _unmarked(item) for key, item in values}
