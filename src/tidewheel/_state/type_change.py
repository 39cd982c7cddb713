"""Compare the description of stored values with the program's type, and convert stored values where that is safe.

The rules, at any depth:

- A field with a default may be added. Fields of a record may change their order; for a positional record, stored values
  are rewritten.
- If a field's default changed or was removed, stored values without the field keep the old default: they are rewritten.
- An int may become a float, a type may become a union that contains it, and a set of allowed values may grow.
- A removed or renamed field, a new field without a default, and every other change of a type is a `Misfit`.
- If the old type is unknown, or the new one is narrower, the stored values must be read: the change is not `certain`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from tidewheel._state.type_conversion import (
    Convert,
    array,
    by,
    by_member,
    by_name,
    by_position,
    decode,
    mapping,
    tagged_only,
)
from tidewheel._state.type_description import (
    ANY,
    BUILT_IN,
    FIELDS,
    ITEMS,
    LITERALS,
    OUTER,
    POSITIONAL,
    RECORD,
    UNDECLARED,
    UNION,
    Field,
    StateType,
    shown_default,
)

_NATURAL = frozenset({"none", "bool", "int", "float", "str", "bytes", "literal", ANY})
"""Types whose values are read back unchanged even if the type is no longer declared."""
_NUMBERS = frozenset({"bool", "int", "float"})
_SERVES: dict[str, frozenset[str]] = {
    "bool": _NUMBERS | {"decimal"},
    "int": _NUMBERS | {"decimal"},
    "float": _NUMBERS,
    "decimal": frozenset({"int"}),
    "counter": frozenset({"dict"}),
    "ordereddict": frozenset({"dict"}),
    RECORD: frozenset({"dict"}),
    "tuple...": frozenset({"tuple"}),
}
"""The other types that an undeclared value can be used as."""

Frames = tuple[StateType, ...]
"""The enclosing records of a place, the outermost first."""


class Misfit(Exception):
    """Stored values cannot be converted to the program's type; the text says where and why, after the name of the step."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.advice = advice
        """Advice other than an upgrade function or a new name."""


@dataclass
class Change:
    """The effect of a type change on stored values."""

    convert: Convert | None = None
    """None if they can be read unchanged."""
    certain: bool = True
    """Whether every stored value fits; otherwise each of them must be read once."""
    notes: list[str] = field(default_factory=list)
    """Descriptions of the effect, for the user who starts the job."""

    @property
    def is_none(self) -> bool:
        """Whether stored values need no change."""
        return self.convert is None and self.certain


def change(was: StateType | None, now: StateType, subject: str = "its state") -> Change:
    """Return the effect on stored values; raise `Misfit` if a value would be lost or misread.

    `was` is None if nothing was recorded. `subject` names the values in messages.
    """
    if was == now or (was is None and now == UNDECLARED):
        return Change()
    if was is None:
        return Change(certain=False)
    comparison = _Comparison(subject)
    return Change(comparison.of(was, now, "", (), ()), comparison.certain, comparison.notes)


def with_defaults(stored: StateType) -> Convert | None:
    """Return a function that adds the known defaults of fields that a stored value lacks."""
    return change(stored, _without_defaults(stored)).convert


def _without_defaults(stored: StateType) -> StateType:
    fields = tuple(
        msgspec.structs.replace(each, type=_without_defaults(each.type), default=None) for each in stored.fields
    )
    kind = RECORD if stored.kind == FIELDS else stored.kind
    return msgspec.structs.replace(stored, kind=kind, fields=fields, parts=tuple(map(_without_defaults, stored.parts)))


class _Comparison:
    def __init__(self, subject: str) -> None:
        self.subject, self.certain, self.notes = subject, True, list[str]()
        self._begun: dict[tuple[int, int], list[Convert | None]] = {}
        """The pairs of records that are being compared, for recursive types."""

    def of(self, was: StateType, now: StateType, path: str, outer: Frames, outer_now: Frames) -> Convert | None:
        was, outer = _resolved(was, outer)
        now, outer_now = _resolved(now, outer_now)
        frames = (outer, outer_now)
        if was.kind == FIELDS:
            was = self._recorded_flat(was, now)
        if ANY in (was.kind, now.kind):
            return self._undeclared(was, now, path, *frames)
        if UNION in (was.kind, now.kind):
            return self._union(was, now, path, *frames)
        if was.kind != now.kind:
            if (was.kind, now.kind) == ("int", "float"):
                self._narrowed(now)
                return None
            if was.kind == "literal" or now.kind == "literal":
                self._literal(was, now, path)
                return None
            raise self._differ(was, now, path)
        if was.kind in (RECORD, POSITIONAL):
            return self._record(was, now, path, *frames)
        if was.detail != now.detail:
            self._narrowed(now)
        if was.kind in LITERALS and not {each.name for each in was.parts} <= {each.name for each in now.parts}:
            self.certain = False
        if was.kind in ITEMS:
            item = self.of(was.parts[0], now.parts[0], f"{path}[]", *frames)
            return None if item is None else lambda values: [item(each) for each in array(values)]
        if was.kind == "tuple":
            return self._tuple(was, now, path, *frames)
        return self._dict(was, now, path, *frames) if was.kind == "dict" else None

    def _recorded_flat(self, was: StateType, now: StateType) -> StateType:
        """Return a record of an earlier version as if it were stored like today's; reading stored values confirms it."""
        self.certain = False
        today = next((each for each in _members(now) if each.kind in (RECORD, POSITIONAL)), now)
        kind = today.kind if today.kind in (RECORD, POSITIONAL) else RECORD
        return msgspec.structs.replace(was, kind=kind, detail=today.detail)

    def _narrowed(self, now: StateType) -> None:
        """Note that constraints have changed: stored values may violate the new ones."""
        self.certain = self.certain and not now.detail

    def _literal(self, was: StateType, now: StateType, path: str) -> None:
        """Compare a literal or enum type with a plain type of the same kind of values."""
        few, plain = (was, now) if was.kind == "literal" else (now, was)
        kinds = {"str" if each.name[0] in "'\"" else "none" if each.name == "None" else "int" for each in few.parts}
        if kinds != {plain.kind}:
            raise self._differ(was, now, path)
        if few is now:
            self.certain = False
        else:
            self._narrowed(now)

    def _tuple(self, was: StateType, now: StateType, path: str, *frames: Frames) -> Convert | None:
        if len(was.parts) != len(now.parts):
            raise self._differ(was, now, path)
        pairs = enumerate(zip(was.parts, now.parts, strict=True))
        places = {at: self.of(*pair, f"{path}[{at}]", *frames) for at, pair in pairs}
        if not any(places.values()):
            return None
        return lambda values: [by(places[at], each) for at, each in enumerate(array(values))]

    def _dict(self, was: StateType, now: StateType, path: str, *frames: Frames) -> Convert | None:
        if self.of(was.parts[0], now.parts[0], f"{path}[key]", *frames) is not None:
            raise self._differ(was.parts[0], now.parts[0], f"{path}[key]")
        item = self.of(was.parts[1], now.parts[1], f"{path}[]", *frames)
        return None if item is None else lambda values: {key: item(each) for key, each in mapping(values).items()}

    def _union(self, was: StateType, now: StateType, path: str, *frames: Frames) -> Convert | None:
        """Find for each member of the stored union a new member that accepts its values."""
        by_kind: list[tuple[StateType, Convert]] = []
        for member in _members(was):
            if (convert := self._member(member, was, now, path, *frames)) is not None:
                by_kind.append((_resolved(member, frames[0])[0], convert))
        return by_member(by_kind) if by_kind else None

    def _member(
        self, member: StateType, was: StateType, now: StateType, path: str, outer: Frames, outer_now: Frames
    ) -> Convert | None:
        stored = _resolved(member, outer)[0]
        likely = [each for each in _members(now) if _alike(stored, _resolved(each, outer_now)[0])]
        for each in likely:
            return self.of(member, each, path, outer, outer_now)
        for each in _members(now):
            attempt = _Comparison(self.subject)
            try:
                attempt.of(member, each, path, outer, outer_now)
            except Misfit:
                continue
            return self.of(member, each, path, outer, outer_now)
        raise self._differ(was, now, path)

    def _record(self, was: StateType, now: StateType, path: str, outer: Frames, outer_now: Frames) -> Convert | None:
        pair = (id(was), id(now))
        if pair in self._begun:
            found = self._begun[pair]
            return lambda value: by(found[0], value)
        result: list[Convert | None] = [None]
        self._begun[pair] = result
        if was.detail != now.detail:
            raise self._differ(was, now, path)
        before = {each.name: each for each in was.fields}
        for gone in (name for name in before if name not in now.names):
            raise Misfit(
                f"{self.subject} is stored with the field {_field(path, gone)!r} ({before[gone].type}), which the program no "
                f"longer declares ({now}): its values would be lost",
                "keep the field",
            )
        parts: dict[str, Convert] = {}
        missing: dict[str, Any] = {}
        for each in now.fields:
            where = _field(path, each.name)
            if each.name not in before:
                self._added(each, where, now)
                continue
            stored = before[each.name]
            convert = self.of(stored.type, each.type, where, (*outer, was), (*outer_now, now))
            if convert is not None:
                parts[each.name] = convert
            if stored.default is not None and stored.default != each.default:
                missing[each.name] = by(convert, decode(stored.default))
                self.notes.append(
                    f"stored states that lack {where!r} ({shown_default(stored.default)}) get the default of before, and new "
                    "keys begin with today's"
                )
            elif stored.default is None and not stored.required and each.required:
                self.certain = False
        if was.kind == POSITIONAL and [name for name in now.names if name in before] != was.names:
            self.notes.append(f"stored values of {was.name or now.name} are rewritten in the new order of its fields")
        rewrite = by_position if was.kind == POSITIONAL else by_name
        result[0] = rewrite(was, now, parts, missing)
        return result[0]

    def _added(self, added: Field, where: str, now: StateType) -> None:
        if added.required:
            raise Misfit(
                f"the program declares {self.subject} with the field {where!r} ({added.type}), which the stored state lacks",
                "give it a default",
            )
        begins = "" if added.default is None else f", and is {shown_default(added.default)} in stored states"
        self.notes.append(f"the field {where!r} of {self.subject} is new{begins}")
        last = now.fields.index(added) == len(now.fields) - 1
        if now.kind == POSITIONAL and added.default is None and not last:
            raise Misfit(
                f"the program declares {self.subject} with the field {where!r} among others that are stored by position, and "
                "its default is not known",
                "put the field at the end",
            )

    def _undeclared(self, was: StateType, now: StateType, path: str, *frames: Frames) -> Convert | None:
        """Compare two types if one of them is undeclared, with at most a default as a hint."""
        stored, today = (each.parts[0] if each.kind == ANY and each.parts else None for each in (was, now))
        if stored is not None and stored.kind == FIELDS:
            stored = msgspec.structs.replace(stored, kind=RECORD)
        if now.kind != ANY:
            if stored is None:
                self.certain = False
                return None
            if stored.kind == RECORD == now.kind:
                # Values that were stored without a declared type can have any type.
                self.certain = False
                return self._record(stored, now, path, *frames)
            if stored.kind in BUILT_IN and _never(stored, now):
                raise self._differ(was, now, path)
            self.certain = False
            return None
        if was.kind == ANY:
            if stored is None and today is not None:
                self.certain = self.certain and today.kind == RECORD
            if stored is None or today is None:
                return None
            if stored.kind == RECORD == today.kind:
                return tagged_only(self._record(stored, today, path, *frames))
            if today.kind not in {stored.kind, *_SERVES.get(stored.kind, ())}:
                raise self._differ(was, now, path)
            return None
        lossy = _not_natural(was)
        if lossy is not None or (today is not None and not _may_serve(was, today)):
            raise Misfit(
                f"{self._at(path)} is stored as {was}, and the program begins it as {now}",
                f"declare {lossy or was} again: without a declaration, it is read as another type",
            )
        return None

    def _differ(self, was: StateType, now: StateType, path: str) -> Misfit:
        begins = now.kind == ANY
        return Misfit(
            f"{self._at(path)} is stored as {was}, and the program {'begins it as' if begins else 'declares'} {now}",
            "begin it as the old type" if begins else "declare the old type",
        )

    def _at(self, path: str) -> str:
        return f"the field {path!r} of {self.subject}" if path else self.subject


def _field(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _resolved(type: StateType, outer: Frames) -> tuple[StateType, Frames]:
    """Return the record that a reference to an enclosing record means, with its own enclosing records."""
    if type.kind != OUTER:
        return type, outer
    up = int(type.name)
    return outer[-up], outer[:-up]


def _members(type: StateType) -> tuple[StateType, ...]:
    return type.parts if type.kind == UNION else (type,)


def _alike(was: StateType, now: StateType) -> bool:
    return was.kind == now.kind and (was.kind not in (RECORD, POSITIONAL) or was.detail == now.detail)


def _never(stored: StateType, now: StateType) -> bool:
    """Return whether values of an undeclared, probably built-in type can never match a declared type."""
    kinds = {_built_in(each) for each in _members(now)} - {"none"}
    if not kinds <= BUILT_IN:
        return False  # Times, for example, are read from text and from numbers.
    return stored.kind not in kinds and not (stored.kind == "int" and "float" in kinds)


def _built_in(type: StateType) -> str:
    """Return the built-in type that values of a type are read as if nothing is declared."""
    if type.kind == "literal":
        return "str" if all(each.name[0] in "'\"" for each in type.parts) else "int"
    return {RECORD: "dict", POSITIONAL: "list", "tuple...": "tuple"}.get(type.kind, type.kind)


def _may_serve(was: StateType, today: StateType) -> bool:
    kinds = {_built_in(each) for each in _members(was)} - {"none"}
    return not kinds or any(today.kind in {kind, *_SERVES.get(kind, ())} for kind in kinds)


def _not_natural(type: StateType) -> StateType | None:
    """Return a type, or a type inside it, whose values are read back differently once it is no longer declared."""
    if type.kind == OUTER:
        return None
    if type.kind not in (*_NATURAL, UNION, RECORD, FIELDS, "list", "dict"):
        return type
    inner = (*type.parts, *(each.type for each in type.fields)) if type.kind != "literal" else ()
    return next(filter(None, map(_not_natural, inner)), None)
