"""Checks of dict keys in cells: only types that msgspec can write as keys, so that values can also be given as JSON."""

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
"""Types that msgspec cannot write as dict keys."""


def check_keys(declared: Any) -> None:
    """Raise a `ConfigError` for a type with a dict whose keys could never be written."""
    try:
        info = known.type_info(declared)
    except (TypeError, NameError):
        return  # The decoder rejects a value that is not a type.
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
    """Yield a type and all its component types."""
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
