"""Keys and values as text, for shells and HTTP."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec


def key_candidates(text: str) -> list[Any]:
    """Return the keys that a text may mean, the likelier first: what it says as JSON, then the text itself.

    >>> key_candidates("7"), key_candidates("ada"), key_candidates('["a", 1]')
    ([7, '7'], ['ada'], [('a', 1), '["a", 1]'])
    """
    try:
        value = json.loads(text)
    except ValueError:
        return [text]
    if isinstance(value, list):
        value = _tuples(value)
    if value is None or isinstance(value, dict):
        return [text]
    return [value] if value == text else [value, text]


def shown(value: Any) -> str:
    """Return a value as JSON; bytes as base64, what JSON lacks as text."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return json.dumps(value, default=_plain)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
