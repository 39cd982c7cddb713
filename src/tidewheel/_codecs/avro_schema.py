"""Check Avro schemas before data is read by them."""

from __future__ import annotations

from typing import Any


def check_arrays(schema: Any, named: dict[str, Any] | None = None) -> None:
    """Raise `ValueError` for a parsed schema with an array of values that take no bytes, such as nulls.

    A few bytes can stand for any number of such values, so reading them would take any time and memory. `named` are the
    schemas that this one refers to.

    >>> check_arrays({"type": "array", "items": "string"})
    >>> check_arrays({"type": "array", "items": "null"})
    Traceback (most recent call last):
    ValueError: an array of values that take no bytes, "null", cannot be read safely: a few bytes can stand for any number
    """
    _is_empty(schema, {name: _is_empty(each, {}) for name, each in (named or {}).items()})


def _is_empty(schema: Any, known: dict[str, bool]) -> bool:
    """Return whether the values of a schema take no bytes."""
    if isinstance(schema, list):
        for part in schema:
            _is_empty(part, known)
        return False  # The number of the part takes a byte.
    if isinstance(schema, str):
        return schema == "null" or known.get(schema, False)
    kind = schema["type"]
    if kind == "array":
        if _is_empty(schema["items"], known):
            text = schema["items"] if isinstance(schema["items"], str) else schema["items"].get("name")
            raise ValueError(
                f'an array of values that take no bytes, "{text}", cannot be read safely: a few bytes can stand for any number'
            )
        return False
    if kind == "map":
        _is_empty(schema["values"], known)
        return False  # A key takes a byte.
    if kind in ("record", "error"):
        known[schema["name"]] = False  # A record within itself has no values without end.
        empty = [_is_empty(field["type"], known) for field in schema["fields"]]
        known[schema["name"]] = all(empty)
        return all(empty)
    if kind == "fixed":
        known[schema["name"]] = schema["size"] == 0
        return bool(schema["size"] == 0)
    return kind != "enum" and _is_empty(kind, known)
