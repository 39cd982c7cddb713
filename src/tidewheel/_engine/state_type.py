"""The declared type of an operator's state as a manifest records it, and what a program may change about it. Pure."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import re
import typing
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect

from tidewheel._checkpoint.manifest import StateField
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._state.codec import msgpack_codec
from tidewheel._values import Row
from tidewheel._values.records import is_record
from tidewheel.errors import StateError

_RECORDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
_ANY = "Any"
_EMPTY = (list, dict, set, tuple, frozenset)
_PLAIN = (bool, int, float, str, bytes, list, dict, set, tuple, frozenset)
_TAGGED = (bytearray, deque, Counter, OrderedDict, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, UUID, Row)
_KINDS = {kind: kind.__name__.lower() for kind in (*_PLAIN, *_TAGGED)}
"""The types that a default can tell, and that are known to differ, by the names that declared ones have."""
_RECORD = "record"
_NAMES = frozenset({*_KINDS.values(), _RECORD})
PLAIN = frozenset(_KINDS[kind] for kind in _PLAIN)
"""The built-in types by name. Others that are declared are read from several of them: a time from text, say."""
_NUMBERS = frozenset({"bool", "int", "float"})
_SERVES: dict[str, frozenset[str]] = {
    "bool": _NUMBERS | {"decimal"},
    "int": _NUMBERS | {"decimal"},
    "float": _NUMBERS,
    "decimal": frozenset({"int"}),
    "counter": frozenset({"dict"}),
    "ordereddict": frozenset({"dict"}),
    _RECORD: frozenset({"dict"}),
}
"""As what else a state serves that is read as it is, without a declared type."""


def declared_fields(declared: Any, default: Any = None) -> tuple[StateField, ...]:
    """Return the fields of a declared state type; none where it says nothing that can be checked.

    Without a declared type, a default of a built-in type tells what the state is, though nothing of what is in it. Such a
    field is not required.

    >>> declared_fields(dict[str, int])
    (StateField(name='', type='dict[str, int]', required=True, default=None),)
    >>> declared_fields(None, {})
    (StateField(name='', type='dict', required=False, default=None),)
    """
    if declared is None:
        made = typing.get_origin(default) or (default if isinstance(default, type) else type(default))
        kind = _KINDS.get(Row if isinstance(made, type) and issubclass(made, Row) else made)
        return () if kind is None else (StateField("", kind, required=False),)
    try:
        return _declared_fields(declared)
    except TypeError:
        return _declared_fields.__wrapped__(declared)  # It cannot be hashed.


@functools.lru_cache(maxsize=256)
def _declared_fields(declared: Any) -> tuple[StateField, ...]:
    """Do the work, once for each type: every commit asks."""
    try:
        fields = tuple(_fields(inspect.type_info(declared), "", True, ()))
    except (TypeError, NameError, NotImplementedError):
        return ()  # A type of the user's own, which only a codec of the user's own can store.
    defaults = _encoded_defaults(declared, lasting=True)
    return tuple(msgspec.structs.replace(field, default=defaults.get(field.name)) for field in fields)


def told_fields(spec: StateSpec) -> tuple[StateField, ...]:
    """Return what a program tells of a state: the fields of its declared type, or what a default or a hint tells.

    A record that is only hinted at has a field without a name before its own.
    """
    if spec.codec is not None:
        return ()
    if spec.type is None and is_record(spec.hint):
        return (StateField("", _RECORD, required=False), *declared_fields(spec.hint))
    return declared_fields(spec.type, spec.default if spec.hint is None else spec.hint)


def check_fields(
    operator: str, stored: Sequence[StateField], declared: Sequence[StateField], upgradable: bool = True
) -> None:
    """Refuse a declared type that the stored state does not fit: another type of a field, or a new one without a default.

    A field that is gone is refused too, if the state is `upgradable`: the next write of a key's state would lose its value.
    """
    if not stored or not declared:
        return
    # A record that is no longer declared comes as what it is stored as.
    if _is_record(stored) and _is_record(declared) and (by_default(stored) or not by_default(declared)):
        declared = [field for field in declared if field.name]
    elif by_default(stored) or by_default(declared):
        if by_default(declared):
            check_undeclared(operator, stored, stored, declared, upgradable)
        elif _differ(stored, declared):
            raise StateError(
                f"operator {operator!r}: its state is stored as {_shown(stored)}, and the program declares {_shown(declared)}; "
                f"declare the old type{ways_on(upgradable)}"
            )
        return
    before = {field.name: field for field in stored}
    for field in declared:
        was = before.get(field.name)
        if was is not None and not _widens(was.type, field.type):
            where = f"the field {field.name!r} of its state" if field.name else "its state"
            raise StateError(
                f"operator {operator!r}: {where} is stored as {was.type}, and the program declares {field.type}; "
                f"declare the old type{ways_on(upgradable)}"
            )
        if was is None and field.required:
            what = f"the field {field.name!r}" if field.name else f"a plain {field.type}"
            raise StateError(
                f"operator {operator!r}: the program declares its state with {what}, which the stored state lacks; give "
                f"it a default{ways_on(upgradable)}"
            )
    for name in before if upgradable else ():
        if name and not any(_within(name, field.name) or _within(field.name, name) for field in declared):
            raise StateError(
                f"operator {operator!r}: its state is stored with the field {name!r}, which the program no longer declares: "
                f"its values would be lost. Keep the field{ways_on(upgradable)}"
            )


def ways_on(upgradable: bool = True) -> str:
    """Return what may be done about stored state that does not fit, beside giving the operator its old type."""
    upgrade = "; raise version= and give upgrade=, which makes today's state of the stored one" if upgradable else ""
    return f"{upgrade}; or give the operator a new name, under which it begins without state (see docs/howto-change.md)"


def by_default(fields: Sequence[StateField]) -> bool:
    """Tell whether the type is not declared: there are no fields, or a default or a hint tells them."""
    return not fields or (not fields[0].name and not fields[0].required)


def check_undeclared(
    operator: str,
    stored: Sequence[StateField],
    was: Sequence[StateField],
    now: Sequence[StateField],
    upgradable: bool = True,
) -> None:
    """Refuse an undeclared type that is certainly not that of stored state, of which a program told before what it `was`."""
    if stored and now and _differ(stored, now):
        way = "begin it as the old type"
        if not by_default(was):
            way = f"declare {'the record' if was[0].name else was[0].type} again: undeclared, it is not read as what it was"
        raise StateError(
            f"operator {operator!r}: its state is stored as {_shown(stored)}, and the program begins it as {_shown(now)}; "
            f"{way}{ways_on(upgradable)}"
        )


def _differ(stored: Sequence[StateField], declared: Sequence[StateField]) -> bool:
    """Tell whether a type has certainly nothing in common with the stored one, where one of them is not declared.

    Of one that is declared, but not built in, only the stored states tell.
    """
    known = _NAMES if by_default(declared) else PLAIN
    before, after = _kinds(stored, known), _kinds(declared, known)
    if by_default(declared):
        before |= {kind for was in before for kind in _SERVES.get(was, ())}
    return bool(before and after) and not any(_widens(was, now) for was in before for now in after)


def _is_record(fields: Sequence[StateField]) -> bool:
    return bool(fields[0].name) or (by_default(fields) and fields[0].type == _RECORD)


def _kinds(fields: Sequence[StateField], known: frozenset[str]) -> set[str]:
    """Return the types that a state may have; none where they are not among the known ones."""
    if fields[0].name:
        return {"dict", "list"}  # A record, as it is stored.
    kinds = {member.partition("[")[0] for member in _members(fields[0].type)} - {"none"}
    return kinds if kinds <= known else set()


def _shown(fields: Sequence[StateField]) -> str:
    named = next((field.name for field in fields if field.name), None)
    return fields[0].type if named is None else f"a record with the field {named!r}"


def added_defaults(stored: Sequence[StateField], declared: Any) -> dict[str, bytes]:
    """Return the encoded defaults of the stored fields that a key's state may lack, as the program that stored them had them.

    Fields with a default may have been added after a key's state was last written. Of a default that was not recorded, today's
    serves, where the declared type still has the field.
    """
    optional = {field.name.partition(".")[0] for field in stored if field.name and not field.required}
    today = {name: default for name, default in _encoded_defaults(declared).items() if name in optional}
    return today | {field.name: field.default for field in stored if field.default is not None}


def _encoded_defaults(declared: Any, lasting: bool = False) -> dict[str, bytes]:
    """Return the defaults of the fields of a record; `lasting`: without those that functions of the user's own make anew."""
    try:
        info, types = inspect.type_info(declared), typing.get_type_hints(declared)
    except (TypeError, NameError, NotImplementedError):
        return {}  # What it says cannot be known.
    defaults = {}
    for field in info.fields if isinstance(info, _RECORDS) else ():
        if field.default is not msgspec.NODEFAULT:
            default = field.default
        elif field.default_factory in _EMPTY or (not lasting and field.default_factory is not msgspec.NODEFAULT):
            default = field.default_factory()
        else:
            continue
        # What the type cannot store is told where it is stored.
        with contextlib.suppress(TypeError, ValueError, NotImplementedError, StateError):
            defaults[field.encode_name] = msgpack_codec(types[field.name]).encode(default)
    return defaults


def _within(name: str, outer: str) -> bool:
    """Tell whether a field is another one, or inside it; everything is inside a type without fields."""
    return not outer or name == outer or name.startswith(f"{outer}.")


def _fields(info: inspect.Type, name: str, required: bool, within: tuple[Any, ...]) -> Iterator[StateField]:
    if not isinstance(info, _RECORDS) or info.cls in within:
        yield StateField(name, _text(info), required)
        return
    for field in info.fields:
        inner = f"{name}.{field.encode_name}" if name else field.encode_name
        yield from _fields(field.type, inner, required and field.required, (*within, info.cls))


def _text(info: inspect.Type) -> str:
    """Return a type as text that is the same in every process."""
    match info:
        case inspect.UnionType():
            return " | ".join(sorted(map(_text, info.types)))
        case inspect.DictType():
            return f"dict[{_text(info.key_type)}, {_text(info.value_type)}]"
        case inspect.TupleType():
            return f"tuple[{', '.join(map(_text, info.item_types))}]"
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            return f"{_kind(info)}[{_text(info.item_type)}]"
        case inspect.LiteralType():
            return f"Literal[{', '.join(map(repr, info.values))}]"
        case inspect.Metadata():
            return _text(info.type)
        case inspect.CustomType():
            return _ANY
    named = getattr(info, "cls", None)
    return _kind(info) if named is None else named.__name__


def _kind(info: inspect.Type) -> str:
    name = type(info).__name__.removesuffix("Type")
    return {"VarTuple": "tuple", "FrozenSet": "frozenset"}.get(name, name if name == _ANY else name.lower())


def _widens(stored: str, declared: str) -> bool:
    """Tell whether every stored value of one type is one of the other, as far as is known."""
    members = _members(declared)
    return _ANY in (stored, declared) or all(
        member in members or (member == "int" and "float" in members) for member in _members(stored)
    )


def _members(text: str) -> set[str]:
    """Return the members of a union; those inside brackets belong to what is around them."""
    parts, depth = [""], 0
    for piece in re.split(r"([\[\]]| \| )", text):
        depth += {"[": 1, "]": -1}.get(piece, 0)
        if piece == " | " and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return set(parts)
