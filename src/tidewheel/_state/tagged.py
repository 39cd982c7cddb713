"""Tagged values: extension types for what msgpack does not preserve, so that state is read back unchanged.

A tag names one of the types below and never a class of a program: decoding state runs no foreign code. Records
(dataclasses, structs, named tuples) and enums therefore need a declared type, and are rejected here. The record that an
undeclared state starts with is only tagged as a record: the program that reads it knows its class.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import struct
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec.msgpack import Ext

from tidewheel._core.text import with_article
from tidewheel._values.row import Row, row_class

NATIVE = frozenset({type(None), bool, int, float, str, bytes})
"""The types of single values that msgpack preserves."""

_encode = msgspec.msgpack.Encoder().encode


class NotStorable(Exception):
    """A value would not be read back unchanged; the text has the reason and advice."""


class NotTheFirstType(NotStorable):
    """A state does not have the type that the state of its step begins with; the text names that type."""


def tagged(value: Any) -> Any:
    """Return the form to encode for an undeclared value; raise `NotStorable` if it would not be read back unchanged.

    >>> decode(_encode(tagged({"seen": {1, 2}, "last": (1, "a")})))
    {'seen': {1, 2}, 'last': (1, 'a')}
    """
    kind = type(value)
    if kind in NATIVE:
        return value
    if kind is list:
        return _all_tagged(value)
    if kind is dict:
        if NATIVE.issuperset(map(type, value)):
            return dict(zip(value, _all_tagged(list(value.values())), strict=True))
        return _ext("pairs", [tagged(each) for pair in value.items() for each in pair])
    if kind in _WRITTEN:
        return _WRITTEN[kind](value)
    if isinstance(value, Row):
        return _ext("row", [value._columns, _all_tagged(list(value))])
    raise NotStorable(_reason(value))


def _all_tagged(values: list[Any]) -> list[Any]:
    return values if NATIVE.issuperset(map(type, values)) else list(map(tagged, values))


def decode(data: bytes | memoryview) -> Any:
    """Decode a value that was encoded with `tagged`."""
    return _decode(data)


def untagged(code: int, data: memoryview) -> Any:
    """Return the value of an extension type: the `ext_hook` of every decoder of state."""
    read = _READ.get(code)
    if read is None:
        raise ValueError(f"the extension type {code} is not known; a newer Tidewheel may have written it")
    return read(_decode(data))


_decode = msgspec.msgpack.Decoder(ext_hook=untagged).decode

_CODES = {
    "pairs": 1,
    "row": 2,
    "tuple": 3,
    "set": 4,
    "frozenset": 5,
    "datetime": 6,
    "date": 7,
    "time": 8,
    "timedelta": 9,
    "decimal": 10,
    "uuid": 11,
    "bytearray": 12,
    "deque": 13,
    "counter": 14,
    "ordered": 15,
    "divided": 16,
    "record": 17,
    "integers": 18,
    "floats": 19,
}
"""The extension types. A number keeps its meaning as long as state exists."""
RECORD = _CODES["record"]
NUMBERS = {"q": _CODES["integers"], "d": _CODES["floats"]}
"""The extension types of lists of integers and floats, 8 bytes each, little-endian, by their code in `array` and `struct`."""


class Divided(msgspec.Struct, frozen=True):
    """The placeholder for a state that is stored in segments: the codec's data for each segment, and its place."""

    segments: list[Any]


def divided(state: Divided) -> bytes:
    """Encode a divided state."""
    return _encode(_ext("divided", state.segments))


def is_divided(data: bytes) -> bool:
    """Return whether encoded state is divided.

    >>> is_divided(divided(Divided([]))), is_divided(_encode(tagged((1, 2))))
    (True, False)
    """
    at = {0xC7: 2, 0xC8: 3, 0xC9: 5}.get(data[0], 1 if 0xD4 <= data[0] <= 0xD8 else len(data))
    return data[at : at + 1] == bytes([_CODES["divided"]])


def undivided(data: bytes) -> Divided:
    """Decode the result of `divided`; raise `ValueError` for anything else."""
    state = _decode(data)
    if not isinstance(state, Divided):
        raise ValueError(f"{with_article(type(state).__name__)} is not a divided state")
    return state


def tagged_record(content: Any) -> Ext:
    """Return the form to encode for the record that an undeclared state starts with; `content` is its stored content.

    Without the program it is decoded as that content.

    >>> decode(_encode(tagged_record({"count": 1})))
    {'count': 1}
    """
    return _ext("record", content)


def _ext(name: str, content: Any) -> Ext:
    return Ext(_CODES[name], _encode(content))


def _items(name: str) -> Callable[[Any], Ext]:
    return lambda value: _ext(name, list(map(tagged, value)))


def _members(name: str) -> Callable[[Any], Ext]:
    # Sort by the encoded bytes, because the order of a set differs between processes.
    return lambda value: _ext(name, sorted(map(tagged, value), key=_encode))


def _flat(name: str) -> Callable[[Any], Ext]:
    return lambda value: _ext(name, [tagged(each) for pair in value.items() for each in pair])


def _datetime(value: dt.datetime) -> Any:
    if value.tzinfo is dt.UTC:
        return value
    day, time = value.date(), value.time()
    clock = (time.hour, time.minute, time.second, time.microsecond, value.fold, _zone(value.tzinfo))
    return _ext("datetime", (day.year, day.month, day.day, *clock))


def _time(value: dt.time) -> Ext:
    zone = _zone(value.tzinfo)
    return _ext("time", (value.hour, value.minute, value.second, value.microsecond, value.fold, zone))


def _zone(zone: dt.tzinfo | None) -> str | int | None:
    """Return the name of a time zone, or its offset from UTC in microseconds."""
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        return zone.utcoffset(None) // dt.timedelta(microseconds=1)
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    raise NotStorable(
        f"the time zone {zone!r} of type {type(zone).__name__} cannot be stored; use zoneinfo.ZoneInfo or datetime.timezone"
    )


def _read_zone(zone: str | int | None) -> dt.tzinfo | None:
    if zone is None:
        return None
    return ZoneInfo(zone) if isinstance(zone, str) else dt.timezone(dt.timedelta(microseconds=zone))


def _read_datetime(fields: list[Any]) -> dt.datetime:
    year, month, day, *clock = fields
    return dt.datetime.combine(dt.date(year, month, day), _read_time(clock))


def _read_time(fields: list[Any]) -> dt.time:
    hour, minute, second, microsecond, fold, zone = fields
    return dt.time(hour, minute, second, microsecond, _read_zone(zone), fold=fold)


def _read_numbers(code: str, data: bytes) -> list[int] | list[float]:
    return list(struct.unpack(f"<{len(data) // 8}{code}", data))


def _read_pairs(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _read_row(content: list[Any]) -> Row:
    columns, values = content
    return row_class(tuple(columns))(*values)


def _read_deque(content: list[Any]) -> deque[Any]:
    limit, items = content
    return deque(items, limit)


_WRITTEN: dict[type, Callable[[Any], Any]] = {
    tuple: _items("tuple"),
    set: _members("set"),
    frozenset: _members("frozenset"),
    dt.datetime: _datetime,
    dt.date: lambda value: _ext("date", value.toordinal()),
    dt.time: _time,
    dt.timedelta: lambda value: _ext("timedelta", (value.days, value.seconds, value.microseconds)),
    Decimal: lambda value: _ext("decimal", str(value)),
    UUID: lambda value: _ext("uuid", value.bytes),
    bytearray: lambda value: _ext("bytearray", bytes(value)),
    deque: lambda value: _ext("deque", (value.maxlen, list(map(tagged, value)))),
    Counter: _flat("counter"),
    OrderedDict: _flat("ordered"),
    Divided: lambda value: _ext("divided", value.segments),
}

_READ: dict[int, Callable[[Any], Any]] = {
    _CODES["pairs"]: _read_pairs,
    _CODES["row"]: _read_row,
    _CODES["tuple"]: tuple,
    _CODES["set"]: set,
    _CODES["frozenset"]: frozenset,
    _CODES["datetime"]: _read_datetime,
    _CODES["date"]: dt.date.fromordinal,
    _CODES["time"]: _read_time,
    _CODES["timedelta"]: lambda fields: dt.timedelta(*fields),
    _CODES["decimal"]: Decimal,
    _CODES["uuid"]: lambda data: UUID(bytes=data),
    _CODES["bytearray"]: bytearray,
    _CODES["deque"]: _read_deque,
    _CODES["counter"]: lambda flat: Counter(_read_pairs(flat)),
    _CODES["ordered"]: lambda flat: OrderedDict(_read_pairs(flat)),
    _CODES["divided"]: Divided,
    RECORD: lambda content: content,
    NUMBERS["q"]: lambda data: _read_numbers("q", data),
    NUMBERS["d"]: lambda data: _read_numbers("d", data),
}


def _reason(value: Any) -> str:
    kind = type(value)
    if isinstance(value, enum.Enum):
        return f"a member of the enum {kind.__name__} needs a declared type; declare it, or keep its value"
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return (
            f"{with_article(kind.__name__)} needs a declared type, else it would come back as plain values: give state= to the "
            "step, or returns= or value= to the stream whose values it keeps"
        )
    plain = next((base for base in kind.__mro__ if base in NATIVE or base in _WRITTEN or base in (list, dict)), None)
    if plain is not None:
        kept, read = with_article(kind.__name__), with_article(plain.__name__)
        return f"{kept} would come back as {read}; convert it, or declare the state's type"
    return f"{with_article(kind.__name__)} has no form in msgpack"
