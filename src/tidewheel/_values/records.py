"""Records: their types, field names and field values."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any

import msgspec

from tidewheel._values.row import Row


def is_record(declared: Any) -> bool:
    """Return whether a type is a dataclass or a `msgspec.Struct`."""
    return isinstance(declared, type) and (issubclass(declared, msgspec.Struct) or dataclasses.is_dataclass(declared))


@lru_cache(maxsize=256)
def field_types(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or Struct with their types, in order."""
    hints = typing.get_type_hints(record)
    if issubclass(record, msgspec.Struct):
        return {name: hints[name] for name in record.__struct_fields__}
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


@lru_cache(maxsize=256)
def is_transparent(record: Any) -> bool:
    """Return whether an instance has exactly the fields that it was created from, because its class computes and checks
    nothing.
    """
    own = ("__post_init__", "__getattr__", "__getattribute__", "__new__")
    known = msgspec.Struct if issubclass(record, msgspec.Struct) else object
    if any(getattr(record, name, None) is not getattr(known, name, None) for name in own):
        return False
    if issubclass(record, msgspec.Struct):
        return type(record) is type(msgspec.Struct)
    generated = record.__dict__.get("__dataclass_params__")
    return type(record) is type and generated is not None and generated.init and not _has_descriptors(record)


def _has_descriptors(record: type) -> bool:
    """Return whether reading a field runs code; slots are descriptors too, but Python's own."""
    members = (vars(base).get(field.name) for base in record.__mro__ for field in dataclasses.fields(record))
    return any(hasattr(type(member), "__get__") and not isinstance(member, MemberDescriptorType) for member in members)


def has_fields(kind: type) -> bool:
    """Return whether values of a type are records: dicts, rows, named tuples, dataclasses or Structs."""
    return issubclass(kind, dict | msgspec.Struct) or hasattr(kind, "_fields") or dataclasses.is_dataclass(kind)


def field_names(value: Any) -> Iterable[str]:
    """Return the names of a record's columns."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Row):
        return value._columns
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return (field.name for field in dataclasses.fields(value))
    return typing.cast(Iterable[str], value._fields)


def field_of(value: Any, name: str) -> Any:
    """Return a field of a record of a declared type; raise `AttributeError` if it has another type without that field."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name)


def optional_field(value: Any, name: str) -> Any:
    """Return a field of a record; None if the record lacks it."""
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, Row):
        return value[name] if name in value._columns else None
    return getattr(value, name, None)
