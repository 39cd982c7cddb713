"""Convert stored values, decoded without a type, from one description to another; `type_change` decides which."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from tidewheel._core.text import with_article
from tidewheel._state.tagged import RECORD as RECORD_TAG
from tidewheel._state.type_description import POSITIONAL, RECORD, StateType

Convert = Callable[[Any], Any]
"""Converts a stored value, decoded without a type, to the current type."""

decode = msgspec.msgpack.Decoder().decode
"""Decode a stored value without a type; tagged values stay unchanged."""
_encode = msgspec.msgpack.Encoder().encode


class NotAsRecorded(Exception):
    """A stored value does not have the type that the manifest records."""


def converted(raw: bytes, convert: Convert) -> bytes:
    """Return the bytes of a converted value."""
    return _encode(convert(decode(raw)))


def lost_field(before: bytes, after: bytes) -> str | None:
    """Return a field of a stored value that its new encoding lacks; None if nothing is lost."""
    return _lost(decode(before), decode(after))


def _lost(before: Any, after: Any) -> str | None:
    before, after = (
        decode(each.data) if isinstance(each, Ext) and each.code == RECORD_TAG else each for each in (before, after)
    )
    if isinstance(before, dict) and isinstance(after, dict):
        gone = next((repr(key) for key in before if key not in after), None)
        return gone or _first(_lost(each, after[key]) for key, each in before.items())
    if isinstance(before, list) and isinstance(after, list):
        return f"[{len(after)}]" if len(before) > len(after) else _first(map(_lost, before, after))
    return None


def _first(found: Iterable[str | None]) -> str | None:
    return next(filter(None, found), None)


def is_of(value: Any, type: StateType) -> bool:
    """Return whether a stored value belongs to a member of a union; msgspec only allows unions with distinguishable members."""
    if type.kind == RECORD:
        return isinstance(value, dict) and (not type.detail or _tag(value) == type.detail)
    if type.kind == "dict":
        return isinstance(value, dict)
    if type.kind == POSITIONAL and type.detail:
        return isinstance(value, list) and bool(value) and type.detail.endswith(f"={value[0]!r}")
    return isinstance(value, list)


def _tag(value: dict[Any, Any]) -> str:
    name, tag = next(iter(value.items()), ("", ""))
    return f"{name}={tag!r}"


def by(convert: Convert | None, value: Any) -> Any:
    """Return a value, converted if there is a conversion."""
    return value if convert is None else convert(value)


_USE_UPGRADE = "raise version= and give upgrade="


def _found(value: Any) -> str:
    return with_article("tagged value" if isinstance(value, Ext) else type(value).__name__)


def array(value: Any) -> list[Any]:
    """Return a value; raise if it is not an array."""
    if not isinstance(value, list):
        raise NotAsRecorded(f"a stored value is {_found(value)}, not an array as recorded; {_USE_UPGRADE}")
    return value


def mapping(value: Any) -> dict[Any, Any]:
    """Return a value; raise if it is not a map."""
    if not isinstance(value, dict):
        raise NotAsRecorded(f"a stored value is {_found(value)}, not a map as recorded; {_USE_UPGRADE}")
    return value


def by_member(members: list[tuple[StateType, Convert]]) -> Convert:
    """Return a function that converts a value of a union by its member type."""

    def convert(value: Any) -> Any:
        if isinstance(value, Ext):
            raise NotAsRecorded(f"a stored value is {_found(value)}, not of the recorded type; {_USE_UPGRADE}")
        return next((each(value) for member, each in members if is_of(value, member)), value)

    return convert


def tagged_only(convert: Convert | None) -> Convert | None:
    """Convert only records that were stored without a declared type, not the user's own dicts."""
    return convert and (lambda value: convert(value) if isinstance(value, Ext) else value)


def by_name(was: StateType, now: StateType, parts: dict[str, Convert], missing: dict[str, Any]) -> Convert | None:
    """Return a function that converts a record stored by field names."""
    if not parts and not missing:
        return None

    def convert(value: Any) -> Any:
        if isinstance(value, Ext) and value.code == RECORD_TAG:
            return Ext(RECORD_TAG, _encode(convert(decode(value.data))))
        if not isinstance(value, dict):
            return value  # Values that were stored without a declared type can have any type.
        changed = {name: parts[name](each) if name in parts else each for name, each in value.items()}
        return changed | {name: each for name, each in missing.items() if name not in changed}

    return convert


def by_position(was: StateType, now: StateType, parts: dict[str, Convert], missing: dict[str, Any]) -> Convert | None:
    """Return a function that converts a record stored by position: its fields by name, in today's order."""
    order, today = was.names, now.names
    if not parts and not missing and today[: len(order)] == order:
        return None
    defaults = {each.name: decode(each.default) for each in now.fields if each.default is not None}
    before = {each.name: by(parts.get(each.name), decode(each.default)) for each in was.fields if each.default}

    def convert(value: Any) -> Any:
        values = array(value)
        tag, values = (values[:1], values[1:]) if was.detail else ([], values)
        known = {name: by(parts.get(name), each) for name, each in zip(order, values, strict=False)}
        filled = {**defaults, **before, **known}
        changed: list[Any] = []
        for name in today:
            if name not in filled:
                break
            changed.append(filled[name])
        return [*tag, *changed]

    return convert
