"""Values as JSON text, for people and for tools that read dead letters."""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import math
import numbers
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

import msgspec

from tidewheel._values.row import Row

_DEEPEST = 50
"""The maximum nesting depth; deeper values are omitted, because they may contain themselves."""


_LONGEST_NUMBER = 10_000
"""Integers of more bits are written as hexadecimal text."""


def json_text(value: Any) -> str:
    """Return any value as JSON.

    Rows, named tuples, dataclasses, Structs and other objects with attributes become JSON objects. Times are ISO 8601.
    Bytes are text if they are UTF-8, otherwise base64. Numbers that JSON does not support, decimals and all other
    values are text.

    >>> json_text({"user": b"ada", "cents": 3, "rate": float("nan")})
    '{"user": "ada", "cents": 3, "rate": "nan"}'
    """
    try:
        plain = _plain(value, 0)
        text = json.dumps(plain, ensure_ascii=False)
    except Exception as error:
        # A mapping or record whose own methods fail.
        return json.dumps(f"{type(value).__name__} that cannot be shown: {type(error).__name__}")
    # A str can contain a lone surrogate, but a file cannot.
    return text if text.isascii() or _is_unicode(text) else json.dumps(plain)


def key_text(key: Any) -> str:
    """Return a key as text: a str unchanged, any other key as JSON.

    >>> key_text("ada"), key_text(("ada", 3))
    ('ada', '["ada", 3]')
    """
    if isinstance(key, bytes):
        return _bytes_text(key)
    return str(key) if isinstance(key, str) else json_text(key)


def _plain(value: Any, depth: int) -> Any:
    """Convert a value to a form that the json module writes correctly."""
    if value is None or value.__class__ in (str, bool):
        return value
    if value.__class__ is int:
        # JSON allows numbers of any length, but Python does not convert more than some thousand digits to text.
        return value if value.bit_length() < _LONGEST_NUMBER else hex(value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, enum.Enum):
        return _plain(value.value, depth)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes_text(bytes(value))
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if depth > _DEEPEST:
        return "…"
    fields = _fields(value)
    if fields is not None:
        return {_name(name): _plain(field, depth + 1) for name, field in fields.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    try:
        return str(value)
    except Exception as error:
        return f"{type(value).__name__} that cannot be shown: {type(error).__name__}"


def _fields(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Row):
        return dict(zip(value._columns, value, strict=True))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    # Use an object's own text if its class defines one; otherwise the attributes say more.
    silent = all(getattr(type(value), name) is getattr(object, name) for name in ("__str__", "__repr__"))
    return vars(value) if silent and hasattr(value, "__dict__") else None


def _name(name: Any) -> str:
    return name if isinstance(name, str) else key_text(name)


def _bytes_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
