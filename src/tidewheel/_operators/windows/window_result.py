"""WindowResult: the result of a window with a function."""

from __future__ import annotations

from typing import Any, Generic

import msgspec

from tidewheel._values.row import Row, row_class
from tidewheel._values.type_variables import Value


class WindowResult(msgspec.Struct, Generic[Value], frozen=True):
    """The result of a window. `start` is part of the window, `end` is not; both are datetimes, or ns if times are integers.

    A `correction` replaces the earlier results of the same window, or of the sessions that grew into it.
    """

    start: Any
    end: Any
    value: Value
    correction: bool = False

    @property
    def final(self) -> bool:
        """Whether the clock has passed the end of the window. False: an early result, which a later one replaces."""
        return True


class EarlyResult(WindowResult[Value], Generic[Value], frozen=True):
    """The result of a window with `early=`."""

    final: bool = True


def with_key(name: str, key: Any, value: Any) -> Any:
    """Return the result of a window as a row with its key; any other value, which a step has made of it, unchanged."""
    if not isinstance(value, WindowResult) or name in value.__struct_fields__:
        return value
    if isinstance(key, tuple):
        key = {f"_{at}": part for at, part in enumerate(key, 1)}
    row: Row = row_class((name, *value.__struct_fields__))(key, *msgspec.structs.astuple(value))
    return row
