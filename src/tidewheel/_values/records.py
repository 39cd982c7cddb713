"""Records: dataclasses and `msgspec.Struct`s, and the types of their fields."""

from __future__ import annotations

import dataclasses
import typing
from functools import lru_cache
from types import MemberDescriptorType
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


@lru_cache(maxsize=256)
def is_transparent(record: Any) -> bool:
    """Tell whether an instance's fields are exactly what it was made from: the class computes and checks nothing of its own."""
    own = ("__post_init__", "__getattr__", "__getattribute__", "__new__")
    known = msgspec.Struct if issubclass(record, msgspec.Struct) else object
    if any(getattr(record, name, None) is not getattr(known, name, None) for name in own):
        return False
    if issubclass(record, msgspec.Struct):
        return type(record) is type(msgspec.Struct)
    generated = record.__dict__.get("__dataclass_params__")
    return type(record) is type and generated is not None and generated.init and not _has_descriptors(record)


def _has_descriptors(record: type) -> bool:
    """Tell whether reading a field runs code; slots are descriptors too, but of Python's own."""
    members = (vars(base).get(field.name) for base in record.__mro__ for field in dataclasses.fields(record))
    return any(hasattr(type(member), "__get__") and not isinstance(member, MemberDescriptorType) for member in members)
