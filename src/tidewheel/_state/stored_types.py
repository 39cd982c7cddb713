"""Stored types: check whether values of a declared type survive msgpack unchanged, for many values at once.

A type is converted once to a tree of the same form. Each level checks the types of all its values in one pass, without
a Python call for each value: checking a batch of states costs a fraction of encoding it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import IntEnum
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any
from uuid import UUID

import msgspec

from tidewheel._core.text import with_article
from tidewheel._state.tagged import NATIVE, NotTheFirstType, tagged, tagged_record
from tidewheel._values.records import field_types, is_record
from tidewheel._values.row import Row

_SCALARS = frozenset({bool, int, float, str, bytes, dt.datetime, dt.date, UUID, msgspec.Raw, type(None)})
_NESTING = NATIVE | {list, dict}
_MAX_DEPTH = 64


class Fit(IntEnum):
    """How to store values so that they are read back unchanged."""

    UNKNOWN = 0
    """Only encoding and decoding a value can tell."""
    TAGGED = 1
    """Store the result of `StoredType.tagged`."""
    NATIVE = 2
    """Store the values unchanged."""


@dataclasses.dataclass(frozen=True)
class Begun:
    """Marks an undeclared type with the type of its first value.

    A record can be stored there, like everything undeclared. A built-in type rejects values of other types.

    >>> begun(dict[str, undeclared(Begun)])
    Begun(type=<class 'tidewheel._state.stored_types.Begun'>)
    """

    type: Any


def undeclared(type: Any) -> Any:
    """Return the type of undeclared values whose first value has `type`."""
    return typing.Annotated[Any, Begun(type)]


def begun(declared: Any) -> Begun | None:
    """Return the first type of the undeclared part of a type; None if there is none or it is unknown."""
    if isinstance(declared, Begun):
        return declared
    return next(filter(None, map(begun, typing.get_args(declared))), None)


class StoredType(ABC):
    """The storage rules of a declared type, for the values of a state or of a part of it."""

    @abstractmethod
    def fit(self, values: Iterable[Any]) -> Fit:
        """Return how all of these values can be stored."""

    def tagged(self, value: Any) -> Any:
        """Return a value with tags wherever the type declares nothing and msgpack alone would lose the type."""
        return value


def stored_type(declared: Any) -> StoredType:
    """Return the storage rules of a declared type; `Any` declares nothing."""
    if declared is Any:
        return _Undeclared()
    if declared in _SCALARS:
        return _Scalar({declared})
    origin, arguments = typing.get_origin(declared) or declared, typing.get_args(declared)
    if origin is typing.Annotated and isinstance(arguments[1], Begun):
        first = arguments[1].type
        return _BegunAs(first) if is_record(first) else _OneKind(first)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin in _CONTAINERS:
        return _CONTAINERS[origin](arguments)
    # A record that computes something when it is created may be decoded differently, or not at all.
    if is_record(declared) and not hasattr(declared, "__post_init__") and _takes_all_fields(declared):
        return _Record(declared)
    return _Unknown()


class _Unknown(StoredType):
    def fit(self, values: Iterable[Any]) -> Fit:
        return Fit.UNKNOWN


class _Undeclared(StoredType):
    def fit(self, values: Iterable[Any]) -> Fit:
        return Fit.NATIVE if _all_native(_listed(values)) else Fit.TAGGED

    def tagged(self, value: Any) -> Any:
        return tagged(value)


class _BegunAs(_Undeclared):
    def __init__(self, record: Any) -> None:
        self.record, self.inner = record, stored_type(record)

    def fit(self, values: Iterable[Any]) -> Fit:
        values = _listed(values)
        records = [value for value in values if type(value) is self.record]
        return min(self.inner.fit(records), Fit.TAGGED) if records else super().fit(values)

    def tagged(self, value: Any) -> Any:
        return tagged_record(self.inner.tagged(value)) if type(value) is self.record else tagged(value)


_NUMBERS = frozenset({bool, int, float, Decimal})
_SETS = frozenset({set, frozenset})


class _OneKind(_Undeclared):
    """Values that must keep the type of the first one, so that a function that swaps its output and its state is detected."""

    def __init__(self, first: type) -> None:
        groups = (group for group in (_NUMBERS, _SETS) if first in group)
        self.first, self.kinds = first, next(groups, frozenset({first}))

    def fit(self, values: Iterable[Any]) -> Fit:
        values = _listed(values)
        if not self.kinds.issuperset(map(type, values)):
            other = next((value for value in values if not isinstance(value, tuple(self.kinds))), None)
            if other is not None:
                raise NotTheFirstType(
                    f"the state begins as {with_article(self.first.__name__)}; if output and new state are in the right order, "
                    "declare both types: state= takes a union"
                )
        return super().fit(values)


class _Scalar(StoredType):
    def __init__(self, kinds: set[type]) -> None:
        self.kinds = kinds

    def fit(self, values: Iterable[Any]) -> Fit:
        return Fit.NATIVE if self.kinds.issuperset(map(type, values)) else Fit.UNKNOWN


class _Optional(StoredType):
    def __init__(self, inner: StoredType) -> None:
        self.inner = inner

    def fit(self, values: Iterable[Any]) -> Fit:
        return self.inner.fit([value for value in values if value is not None])

    def tagged(self, value: Any) -> Any:
        return None if value is None else self.inner.tagged(value)


class _List(StoredType):
    """A list, or a tuple of any length, whose items have one type."""

    def __init__(self, kind: Any, inner: StoredType) -> None:
        self.kind, self.inner = kind, inner

    def fit(self, values: Iterable[Any]) -> Fit:
        values = _listed(values)
        if not {self.kind}.issuperset(map(type, values)):
            return Fit.UNKNOWN
        return self.inner.fit(chain.from_iterable(values))

    def tagged(self, value: Any) -> Any:
        return [self.inner.tagged(item) for item in value] if type(value) is self.kind else value


class _Tuple(StoredType):
    """A tuple with a type for each position."""

    def __init__(self, inner: list[StoredType]) -> None:
        self.inner = inner
        self._places = [place for place, part in enumerate(inner) if not isinstance(part, _Scalar)]

    def fit(self, values: Iterable[Any]) -> Fit:
        values = _listed(values)
        if not {tuple}.issuperset(map(type, values)) or not {len(self.inner)}.issuperset(map(len, values)):
            return Fit.UNKNOWN
        return _least(part.fit(map(itemgetter(place), values)) for place, part in enumerate(self.inner))

    def tagged(self, value: Any) -> Any:
        if type(value) is not tuple or len(value) != len(self.inner):
            return value
        items = list(value)
        for place in self._places:
            items[place] = self.inner[place].tagged(items[place])
        return items


class _Dict(StoredType):
    def __init__(self, key: StoredType, inner: StoredType) -> None:
        self.key, self.inner = key, inner

    def fit(self, values: Iterable[Any]) -> Fit:
        values = _listed(values)
        if not {dict}.issuperset(map(type, values)):
            return Fit.UNKNOWN
        # A key cannot be tagged: msgspec does not support extension types there.
        if self.key.fit(chain.from_iterable(values)) is not Fit.NATIVE:
            return Fit.UNKNOWN
        return self.inner.fit(chain.from_iterable(map(dict.values, values)))

    def tagged(self, value: Any) -> Any:
        return {key: self.inner.tagged(item) for key, item in value.items()} if type(value) is dict else value


class _Record(StoredType):
    def __init__(self, record: Any) -> None:
        self.record = record
        self._parts: dict[str, StoredType] | None = None
        self._stored_names = _stored_names(record)

    @property
    def parts(self) -> dict[str, StoredType]:
        # Created on first use: a record may have a field of its own type.
        if self._parts is None:
            # Include annotations: a constraint such as msgspec.Meta(ge=0) is part of the type.
            hints = typing.get_type_hints(self.record, include_extras=True)
            self._parts = {name: stored_type(hints[name]) for name in field_types(self.record)}
        return self._parts

    def fit(self, values: Iterable[Any]) -> Fit:
        values = _listed(values)
        if not values:
            return Fit.NATIVE
        if not {self.record}.issuperset(map(type, values)):
            return Fit.UNKNOWN
        try:
            fit = _least(part.fit(map(attrgetter(name), values)) for name, part in self.parts.items())
        except AttributeError:
            return Fit.UNKNOWN
        return Fit.UNKNOWN if fit is Fit.TAGGED and self._stored_names is None else fit

    def tagged(self, value: Any) -> Any:
        if type(value) is not self.record or self._stored_names is None:
            return value
        names = zip(self._stored_names, self.parts.items(), strict=True)
        return {stored: part.tagged(getattr(value, name)) for stored, (name, part) in names}


def _takes_all_fields(record: Any) -> bool:
    return issubclass(record, msgspec.Struct) or all(field.init for field in dataclasses.fields(record))


def _stored_names(record: Any) -> tuple[str, ...] | None:
    """Return the stored names of a record's fields, or None if it is not stored as a plain map of them."""
    if not issubclass(record, msgspec.Struct):
        return tuple(field_types(record))
    config = record.__struct_config__
    return None if config.array_like or config.tag is not None else record.__struct_encode_fields__


def _union(arguments: tuple[Any, ...]) -> StoredType:
    if _SCALARS.issuperset(arguments):
        return _Scalar(set(arguments))
    others = [argument for argument in arguments if argument is not type(None)]
    return _Optional(stored_type(others[0])) if len(others) == 1 and len(others) < len(arguments) else _Unknown()


def _list(arguments: tuple[Any, ...]) -> StoredType:
    return _List(list, stored_type(*arguments or (Any,)))


def _tuple(arguments: tuple[Any, ...]) -> StoredType:
    if not arguments:
        return _List(tuple, _Undeclared())
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return _List(tuple, stored_type(arguments[0]))
    return _Tuple([stored_type(argument) for argument in arguments])


def _dict(arguments: tuple[Any, ...]) -> StoredType:
    key, inner = arguments or (Any, Any)
    return _Dict(stored_type(key), stored_type(inner))


def _set(kind: type) -> Callable[[tuple[Any, ...]], StoredType]:
    return lambda arguments: _List(kind, stored_type(*arguments or (Any,)))


_CONTAINERS: dict[Any, Callable[[tuple[Any, ...]], StoredType]] = {
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set(set),
    frozenset: _set(frozenset),
}


def _least(fits: Iterable[Fit]) -> Fit:
    return min(fits, default=Fit.NATIVE)


def _listed(values: Iterable[Any]) -> Sequence[Any]:
    return values if isinstance(values, list | tuple) else list(values)


def _all_native(level: Sequence[Any]) -> bool:
    """Return whether these values contain, at any depth, only lists, dicts and types that msgpack preserves."""
    kinds = set(map(type, level))
    for _ in range(_MAX_DEPTH):
        if kinds <= NATIVE:
            return True
        if not kinds <= _NESTING:
            return False
        lists = [value for value in level if type(value) is list] if list in kinds else []
        dicts = level if kinds == {dict} else [value for value in level if type(value) is dict] if dict in kinds else []
        if not NATIVE.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        if kinds == {dict} and NATIVE.issuperset(map(type, chain.from_iterable(map(dict.values, dicts)))):
            return True
        level = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, dicts))]
        kinds = set(map(type, level))
    return False


def same(value: Any, stored: Any) -> bool:
    """Return whether a value was read back unchanged: equal, and with the same types throughout.

    An int in a place declared as float is read back as a float, as declared.
    """
    kind: Any = type(value)
    if kind is not type(stored):
        return kind is int and type(stored) is float and value == stored
    if kind in (list, tuple):
        return len(value) == len(stored) and all(map(same, value, stored))
    if kind is dict:
        return len(value) == len(stored) and all(map(same, chain(*value.items()), chain(*stored.items())))
    if kind is float:
        return bool(value == stored or (value != value and stored != stored))
    if isinstance(value, Row):
        return value._columns == stored._columns and all(map(same, value, stored))
    if isinstance(value, tuple):
        return len(value) == len(stored) and all(map(same, value, stored))
    if is_record(kind):
        return all(same(getattr(value, name), getattr(stored, name)) for name in field_types(typing.cast(Any, kind)))
    return bool(value == stored)
