"""Types as JSON: a description of valid values, for programs that do not have the declaring class.

A description has the kinds of values, the fields of records and the bounds of `msgspec.Meta`. It does not include code
of a class, such as `__post_init__`: checking by a description runs no code of the program.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import msgspec
import msgspec.inspect

ANY = "any"

_SIMPLE: dict[str, tuple[str, Any]] = {
    "NoneType": ("none", None),
    "BoolType": ("bool", bool),
    "IntType": ("int", int),
    "FloatType": ("float", float),
    "StrType": ("str", str),
    "BytesType": ("bytes", bytes),
    "ByteArrayType": ("bytes", bytes),
    "DateTimeType": ("datetime", datetime.datetime),
    "DateType": ("date", datetime.date),
    "TimeType": ("time", datetime.time),
    "TimeDeltaType": ("timedelta", datetime.timedelta),
    "UUIDType": ("uuid", uuid.UUID),
    "DecimalType": ("decimal", decimal.Decimal),
}
"""By the names of msgspec's classes, some of which exist only in newer versions."""

_PYTHON = dict(_SIMPLE.values())

_LISTS = {"ListType": list, "SetType": set, "FrozenSetType": set, "VarTupleType": list, "CollectionType": list}
_COLLECTIONS = {"list": list, "set": set}

_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")


def describe(declared: Any) -> Any:
    """Return the description of a type as JSON data. A type that cannot be described is "any".

    >>> describe(dict[str, float])
    {'is': 'dict', 'key': 'str', 'of': 'float'}
    """
    try:
        description = _described(msgspec.inspect.type_info(declared), ())
        msgspec.msgpack.Decoder(described_type(description))
    except (TypeError, NameError, ValueError):
        # A union that msgspec supports only for classes, or a name that cannot be resolved.
        return ANY
    return description


def _described(info: msgspec.inspect.Type, within: tuple[type, ...]) -> Any:
    kind = type(info).__name__
    if isinstance(info, msgspec.inspect.Metadata):
        return _described(info.type, within)
    if kind in _SIMPLE:
        return _bounded(_SIMPLE[kind][0], info)
    if kind in _LISTS:
        of = _described(info.item_type, within)  # type: ignore[attr-defined]
        return _bounded({"is": _LISTS[kind].__name__, "of": of}, info)
    if kind in ("DictType", "FrozenDictType"):
        key, of = (_described(each, within) for each in (info.key_type, info.value_type))  # type: ignore[attr-defined]
        return _bounded({"is": "dict", "key": key, "of": of}, info)
    if isinstance(info, msgspec.inspect.TupleType):
        return {"is": "tuple", "of": [_described(each, within) for each in info.item_types]}
    if isinstance(info, msgspec.inspect.UnionType):
        return {"is": "union", "of": [_described(each, within) for each in info.types]}
    if isinstance(info, msgspec.inspect.LiteralType):
        return {"is": "literal", "of": list(info.values)}
    if isinstance(info, msgspec.inspect.EnumType):
        return _enum([each.value for each in info.cls])
    fields = getattr(info, "fields", None)
    if fields is None or info.cls in within:  # type: ignore[attr-defined]
        # A custom class, which only its program can check, or a recursive record.
        return ANY
    return _record(info, [(each, _described(each.type, (*within, info.cls))) for each in fields])  # type: ignore[attr-defined]


def _enum(values: list[Any]) -> Any:
    return {"is": "literal", "of": values} if all(type(value) in (str, int) for value in values) else ANY


def _record(info: Any, fields: list[tuple[msgspec.inspect.Field, Any]]) -> Any:
    if isinstance(info, msgspec.inspect.NamedTupleType) or getattr(info, "array_like", False):
        whole = all(field.required for field, _ in fields) and getattr(info, "tag", None) is None
        return {"is": "tuple", "of": [of for _, of in fields]} if whole else {"is": "list", "of": ANY}
    record = {
        "is": "record",
        "name": info.cls.__name__,
        "fields": [[field.encode_name, of, field.required] for field, of in fields],
    }
    tag = getattr(info, "tag", None)
    return record if tag is None else {**record, "tag": [info.tag_field, tag]}


def _bounded(description: Any, info: msgspec.inspect.Type) -> Any:
    bounds = {name: bound for name in _BOUNDS if (bound := getattr(info, name, None)) is not None}
    return {"is": "bounded", "of": description, "by": bounds} if bounds else description


def described_type(description: Any) -> Any:
    """Return a type that accepts the values of the described type. A record is a `msgspec.Struct` with only its fields.

    >>> described_type({"is": "list", "of": "int"})
    list[int]
    """
    if isinstance(description, str):
        return _PYTHON.get(description, Any)
    kind, of = description["is"], description.get("of")
    if kind == "bounded":
        return Annotated[described_type(of), msgspec.Meta(**description["by"])]
    if kind in _COLLECTIONS:
        return _COLLECTIONS[kind][described_type(of)]  # type: ignore[index]
    if kind == "dict":
        return dict[described_type(description["key"]), described_type(of)]  # type: ignore[misc]
    if kind == "tuple":
        return tuple[tuple(map(described_type, of))]  # type: ignore[misc]
    if kind == "union":
        return reduce(or_, map(described_type, of))
    if kind == "literal":
        return Literal[tuple(of)]
    return _struct(**{name: part for name, part in description.items() if name != "is"})


def _struct(name: str, fields: list[list[Any]], tag: list[Any] | None = None) -> Any:
    # Numbered, because a field's JSON name need not be a valid Python name.
    given: list[tuple[str, Any, Any]] = []
    for number, (_, of, required) in enumerate(fields):
        declared = described_type(of)
        # A missing field stays missing when written: its default belongs to the program.
        default = msgspec.NODEFAULT if required else msgspec.UNSET
        given.append((f"f{number}", declared if required else declared | msgspec.UnsetType, default))
    return msgspec.defstruct(
        name,
        given,
        kw_only=True,
        forbid_unknown_fields=True,
        rename={f"f{number}": field[0] for number, field in enumerate(fields)},
        tag_field=None if tag is None else tag[0],
        tag=None if tag is None else tag[1],
    )
