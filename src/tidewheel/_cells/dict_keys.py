"""The keys of dicts in a cell: texts, numbers, and what is stored as one of these, so that a value can be given as JSON too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec.inspect as known

from tidewheel.errors import ConfigError

_NO_KEYS = (
    known.BoolType,
    known.NoneType,
    known.ListType,
    known.VarTupleType,
    known.TupleType,
    known.SetType,
    known.FrozenSetType,
    known.DictType,
    known.StructType,
    known.DataclassType,
    known.NamedTupleType,
    known.TypedDictType,
)
"""Kinds of values that msgspec does not write as the key of a dict."""


def check_keys(declared: Any) -> None:
    """Refuse, with a `ConfigError`, a type with a dict whose keys could never be written."""
    try:
        info = known.type_info(declared)
    except (TypeError, NameError):
        return  # What is no type at all, its decoder refuses.
    for part in _parts(info, set()):
        if isinstance(part, known.DictType):
            key = part.key_type.type if isinstance(part.key_type, known.Metadata) else part.key_type
            kinds = key.types if isinstance(key, known.UnionType) else (key,)
            for kind in kinds:
                if isinstance(kind, _NO_KEYS):
                    name = type(kind).__name__.removesuffix("Type").lower()
                    raise ConfigError(
                        f"{declared!r} cannot be the declared type of a cell: the keys of a dict are texts or numbers, and here "
                        f"they are of the kind {name}. Make a text of each key, or declare a list of pairs: "
                        "list[tuple[KEY, VALUE]]"
                    )


def _parts(info: known.Type, seen: set[Any]) -> Iterator[known.Type]:
    """Yield a type and all that it is made of."""
    cls = getattr(info, "cls", None)
    if cls is not None:
        if cls in seen:
            return
        seen.add(cls)
    yield info
    inner = [getattr(info, name, None) for name in ("type", "item_type", "key_type", "value_type")]
    inner += [*getattr(info, "item_types", ()), *getattr(info, "types", ())]
    inner += [field.type for field in getattr(info, "fields", ())]
    for part in inner:
        if isinstance(part, known.Type):
            yield from _parts(part, seen)
