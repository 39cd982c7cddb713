"""Upgrade manifests of format 5, which described a step's state as flat fields with types as text.

An imprecise text becomes an undeclared type; the start of the job then reads every stored value once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec

from tidewheel._state.type_description import FIELDS, RESULT, UNDECLARED, UNION, Field, StateType, suggested

_OPERATORS, _FORMER = 19, 20
_RESULT = "= "
_BUILT_IN = """none bool int float str bytes bytearray datetime date time timedelta uuid decimal list dict set tuple frozenset
deque counter ordereddict row"""
_SCALARS = frozenset(_BUILT_IN.split())
_COLLECTIONS = ("list", "set", "frozenset", "dict")
_NESTED = re.compile(r"(\w+)\[(.*)\]", re.DOTALL)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list).decode
_Old = list[Any]
"""A name, the text of a type, whether the field is required, and the default."""


def upgraded(body: bytes) -> bytes:
    """Convert a body of format 5 to format 6; raise `msgspec.DecodeError` if it is invalid."""
    fields = _decode(body)
    try:
        for _, info in fields[_OPERATORS]:
            info[5] = described(info[5])
        for _, infos in fields[_FORMER]:
            for _, info in infos:
                info[5] = described(info[5])
    except (IndexError, TypeError, ValueError, AttributeError) as error:
        raise msgspec.DecodeError(f"the steps are not those of format 5: {error}") from None
    return _encode(fields)


def described(fields: list[_Old]) -> tuple[Field, ...]:
    """Return the fields of a state type as the description of the step's values."""
    if not fields:
        return ()
    if fields[0][1].startswith(_RESULT):
        return tuple(Field(name, StateType(RESULT, text.removeprefix(_RESULT))) for name, text, *_ in fields)
    name, text, required, *_ = fields[0]
    if name:
        return (Field("", _record(fields)),)
    if required:
        return (Field("", _type(text)),)
    # A default suggested the type: a built-in type, or a record whose fields follow.
    return (Field("", suggested(_record(fields[1:]) if len(fields) > 1 else StateType(text))),)


def _record(fields: Iterable[_Old]) -> StateType:
    found = []
    for name, group in groupby(fields, key=lambda field: field[0].partition(".")[0]):
        parts = list(group)
        if parts[0][0] == name:
            _, text, required, *default = parts[0]
            found.append(Field(name, _type(text), required, *default))
        else:
            inner = [[path.partition(".")[2], *rest] for path, *rest in parts]
            found.append(Field(name, _record(inner), any(each[2] for each in parts)))
    return StateType(FIELDS, fields=tuple(found))


def _type(text: str) -> StateType:
    members = [_member(each) for each in _split(text, " | ")]
    if UNDECLARED in members:
        return UNDECLARED
    return members[0] if len(members) == 1 else StateType(UNION, parts=tuple(members))


def _member(text: str) -> StateType:
    if text in _SCALARS:
        return StateType(text)
    nested = _NESTED.fullmatch(text)
    if nested is None or nested[1] not in _COLLECTIONS:
        return UNDECLARED  # A class, of which only the name was recorded, or a tuple, whose length was not recorded.
    return StateType(nested[1], parts=tuple(map(_type, _split(nested[2], ", "))))


def _split(text: str, separator: str) -> list[str]:
    """Split a text at separators outside brackets."""
    parts, depth = [""], 0
    for piece in re.split(rf"([\[\]]|{re.escape(separator)})", text):
        depth += {"[": 1, "]": -1}.get(piece, 0)
        if piece == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
