"""Describe the type of stored values as plain data, which a manifest records and later programs are compared with.

A description contains no class of the program, so tools and later programs can read it. It is recursive: records with
their fields and defaults, positional records, unions, collections and scalars, at any depth.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import typing
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect

from tidewheel._core.text import shortened
from tidewheel._state.codec import msgpack_codec
from tidewheel._values.row import Row
from tidewheel.errors import ConfigError, StateError, StepError

ANY, UNION, RECORD, POSITIONAL, OUTER, RESULT, FIELDS = (
    "any",
    "union",
    "record",
    "positional",
    "outer",
    "result",
    "fields",
)
"""Kinds of types that are not named after a Python type.

`any`: undeclared; its only part, if there is one, is the type that the default or the stream suggests. `record`: a map
by field names. `positional`: an array with one item per field. `outer`: an enclosing record; the name is the number of
levels. `result`: a result of an aggregate; the name describes its components. `fields`: a record of an earlier version
of Tidewheel, stored by names or by position.
"""
LITERALS = ("literal", "enum")
"""Types with a fixed set of values, each of which is a part named after it."""
ITEMS = ("list", "set", "frozenset", "tuple...")
"""Collections with one type for all items."""

BUILT_IN_TYPES = (bool, int, float, str, bytes, list, dict, set, tuple, frozenset)
_TAGGED = (bytearray, deque, Counter, OrderedDict, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, UUID, Row)
_KINDS = {kind: kind.__name__.lower() for kind in (*BUILT_IN_TYPES, *_TAGGED)}
BUILT_IN = frozenset(_KINDS[kind] for kind in BUILT_IN_TYPES)
"""The names of the built-in types. A value of another type may be stored as one of these, such as a time as text."""
_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_LONGEST = 200
"""The maximum length of a record in a message."""
_UNKNOWN = (TypeError, NameError, NotImplementedError)
"""The errors for a type that msgspec does not know: only a user's codec can store its values."""


class StateType(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One type, or one place in a type."""

    kind: str
    name: str = ""
    """The name of a record's class, for messages; for some kinds, see there."""
    detail: str = ""
    """The constraints of a scalar or a collection, or the tag of a record."""
    parts: tuple[StateType, ...] = ()
    fields: tuple[Field, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of a record's fields, in order."""
        return [field.name for field in self.fields]

    def __str__(self) -> str:
        return _shown(self)


class Field(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A field of a record, or one kind of value that a step stores, such as the left side of a join."""

    name: str
    type: StateType
    required: bool = True
    """Whether a stored record must have the field, because it has no default."""
    default: bytes | None = None
    """The encoded default; None if there is none or it is unknown."""


UNDECLARED = StateType(ANY)


def describe(declared: Any) -> StateType:
    """Return the description of a declared type; `UNDECLARED` for a type that msgspec does not know.

    >>> print(describe(dict[str, int | None]))
    dict[str, int | None]
    """
    try:
        return _describe(declared)
    except TypeError:
        return _describe.__wrapped__(declared)  # The type is not hashable.


@functools.lru_cache(maxsize=256)
def _describe(declared: Any) -> StateType:
    """Describe a type, cached because every commit needs it."""
    try:
        return _type(inspect.type_info(declared), ())
    except _UNKNOWN:
        return UNDECLARED


def suggested_by(default: Any) -> StateType:
    """Return the description of an undeclared type with this default; only a built-in default gives a hint.

    >>> print(suggested_by({}), suggested_by(None))
    dict Any
    """
    made = typing.get_origin(default) or (default if isinstance(default, type) else type(default))
    kind = _KINDS.get(Row if isinstance(made, type) and issubclass(made, Row) else made)
    return UNDECLARED if kind is None else suggested(StateType(kind))


def suggested(type: StateType) -> StateType:
    """Return the description of an undeclared type whose values probably have this type."""
    return StateType(ANY, parts=(type,))


def _type(info: inspect.Type, outer: tuple[inspect.Type, ...]) -> StateType:
    match info:
        case inspect.Metadata():
            return _type(info.type, outer)
        case inspect.AnyType() | inspect.CustomType():
            return UNDECLARED
        case inspect.UnionType():
            members = sorted((_type(each, outer) for each in info.types), key=_order)
            return UNDECLARED if UNDECLARED in members else StateType(UNION, parts=tuple(members))
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
            return _record(info, outer)
        case inspect.DictType():
            parts = (_type(info.key_type, outer), _type(info.value_type, outer))
            return StateType("dict", detail=_constraints(info), parts=parts)
        case inspect.TupleType():
            return StateType("tuple", parts=tuple(_type(each, outer) for each in info.item_types))
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            return StateType(_kind(info), detail=_constraints(info), parts=(_type(info.item_type, outer),))
        case inspect.LiteralType():
            return StateType("literal", parts=_values(info.values))
        case inspect.EnumType():
            return StateType("enum", info.cls.__name__, parts=_values(each.value for each in info.cls))
    return StateType(_kind(info), detail=_constraints(info))


def _kind(info: inspect.Type) -> str:
    name = type(info).__name__.removesuffix("Type").lower()
    return {"vartuple": "tuple..."}.get(name, name)


def _constraints(info: inspect.Type) -> str:
    given = ((name, getattr(info, name, None)) for name in _CONSTRAINTS)
    return ", ".join(f"{name}={value!r}" for name, value in given if value is not None)


def _values(values: Iterable[Any]) -> tuple[StateType, ...]:
    return tuple(StateType("value", shown) for shown in sorted(map(repr, values)))


def _order(type: StateType) -> tuple[bool, str, str, str]:
    """Sort the members of a union, None last."""
    return type.kind == "none", type.kind, type.detail, type.name


def _record(info: Any, outer: tuple[Any, ...]) -> StateType:
    # msgspec uses one object for all occurrences of a recursive class.
    for up, around in enumerate(reversed(outer), 1):
        if around is info:
            return StateType(OUTER, str(up))
    array_like = isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False)
    tag = getattr(info, "tag", None)
    defaults = _defaults(info)
    fields = tuple(
        Field(field.encode_name, _type(field.type, (*outer, info)), field.required, defaults.get(field.name))
        for field in info.fields
    )
    detail = "" if tag is None else f"{info.tag_field}={tag!r}"
    return StateType(POSITIONAL if array_like else RECORD, info.cls.__name__, detail, fields=fields)


def _defaults(info: Any) -> dict[str, bytes]:
    """Return the encoded defaults of a record's fields, except defaults that differ each time."""
    try:
        types = typing.get_type_hints(info.cls)
    except _UNKNOWN:
        return {}
    found = {}
    for field in info.fields:
        # A default that the type cannot store is reported when it is stored.
        with contextlib.suppress(Exception):
            encode = functools.partial(_encoded, types[field.name])
            if field.default is not msgspec.NODEFAULT:
                found[field.name] = encode(field.default)
            elif field.default_factory is not msgspec.NODEFAULT:
                one, other = encode(field.default_factory()), encode(field.default_factory())
                if one == other:
                    found[field.name] = one
    return found


def _encoded(type: Any, default: Any) -> bytes:
    try:
        encoded = msgpack_codec(type).encode(default)
    except (ConfigError, StepError, StateError):
        # A default need not match the field's type, such as None in a field that cannot store None.
        encoded = msgpack_codec().encode(default)
    if not isinstance(default, set | frozenset):
        return encoded
    # A set has no order, but its encoding must not change between runs.
    items = sorted(map(bytes, msgspec.msgpack.decode(encoded, type=list[msgspec.Raw])))
    return msgspec.msgpack.encode(list(map(msgspec.Raw, items)))


def _shown(type: StateType) -> str:
    parts = type.parts
    match type.kind:
        case "any":
            return _shown(parts[0]) if parts else "Any"
        case "none":
            return "None"
        case "union":
            return " | ".join(map(_shown, parts))
        case "literal":
            return f"Literal[{', '.join(part.name for part in parts)}]"
        case "record" | "positional" | "fields":
            fields = ", ".join(f"{field.name}: {field.type}" for field in type.fields)
            text = f"{type.name or 'record'}({fields})"
            return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        case "outer":
            return "…"
        case "tuple...":
            return f"tuple[{parts[0]}, ...]"
    inside = f"[{', '.join(map(_shown, parts))}]" if parts and type.kind not in LITERALS else ""
    detail = f" ({type.detail})" if type.detail else ""
    return f"{type.name or type.kind}{inside}{detail}"


def shown_default(default: bytes) -> str:
    """Return an encoded default as text for a message."""
    return shortened(msgpack_codec().decode(default), 60)
