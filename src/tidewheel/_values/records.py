"""Records: dataclasses and `msgspec.Struct`s, and the types of their fields."""

from __future__ import annotations

import dataclasses
import typing
from functools import lru_cache
from typing import Any

import msgspec


def is_record(declared: Any) -> bool:
    """Tell whether a type is a dataclass or a `msgspec.Struct`."""
    return isinstance(declared, type) and (issubclass(declared, msgspec.Struct) or dataclasses.is_dataclass(declared))


@lru_cache(maxsize=256)
def field_types(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or Struct with their types, in order."""
    hints = typing.get_type_hints(record)
    if issubclass(record, msgspec.Struct):
        return {name: hints[name] for name in record.__struct_fields__}
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}
