"""Keys and values as text, for shells and HTTP."""

from __future__ import annotations

import base64
import json
from collections import deque
from typing import Any

import msgspec

from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._checkpoint.named_results import with_names
from tidewheel._state.codec import codec_named
from tidewheel.errors import TidewheelError

_LONGEST_BITS = 10_000
"""The length of an integer above which it is shown in hexadecimal: Python refuses to print very long ones in decimal."""


def key_candidates(text: str) -> list[Any]:
    """Return the keys that a text can stand for, the likelier first: its meaning as JSON, then the text itself.

    >>> key_candidates("7"), key_candidates("ada"), key_candidates('["a", 1]')
    ([7, '7'], ['ada'], [('a', 1), '["a", 1]'])
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    if isinstance(value, list):
        value = _tuples(value)
    if value is None or isinstance(value, dict):
        return [text]
    return [value] if value == text else [value, text]


def shown(value: Any) -> str:
    """Return a value as JSON; bytes as base64, and values and keys that JSON does not support as text."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return json.dumps(_plain(value))


def decoded(raw: bytes | None, codec: str, info: OperatorInfo | None = None) -> Any:
    """Decode state; return only the size of state that cannot be decoded without running code.

    `info` describes the step: aggregates and joins then have named parts.
    """
    if raw is None:
        return None
    try:
        own = codec_named(codec)
        return (own if info is None else with_names(info, own)).decode(raw)
    except TidewheelError:
        return f"{len(raw)} bytes"


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _LONGEST_BITS:
        return hex(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(map(_plain, value))
    return _plain(msgspec.structs.asdict(value)) if isinstance(value, msgspec.Struct) else str(value)
