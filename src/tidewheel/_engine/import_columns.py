"""Do the columns of a table fit an operator's state? Looked at before the first row is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from msgspec import inspect

from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._values.shape import VALUE
from tidewheel.errors import ConfigError, StateError

_NUMBERS = int | float
_PLAIN: dict[type, Any] = {bool: bool, int: _NUMBERS, float: _NUMBERS, str: str, bytes: bytes}
"""By the type of a default, the type that states have. A count that begins at 0 may become a mean."""
_FITTING: dict[type[inspect.Type], Callable[[pa.DataType], bool]] = {
    inspect.BoolType: pa.types.is_boolean,
    inspect.IntType: pa.types.is_integer,
    inspect.FloatType: lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind),
    inspect.StrType: lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    inspect.BytesType: lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
}
_KNOWN: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
RECORDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_OPEN = (*RECORDS, inspect.NamedTupleType, inspect.DictType, inspect.AnyType, inspect.CustomType, inspect.UnionType)
"""Types whose values may have several columns, or of which nothing is known."""


@dataclass(frozen=True)
class StateColumns:
    """Which columns of a table are keys and which are state."""

    key: str = "key"
    value: str | None = None
    """The column that is the whole state; None: all beside the key are."""

    def fields(self, names: Sequence[str], where: str) -> dict[str, str]:
        """Return the columns with state, each with the name that the operator's state has for it.

        A `ConfigError` if a column is not there; `where` is what the columns are of.
        """
        there = f"the columns are {', '.join(names)}"
        if self.key not in names:
            raise ConfigError(
                f"{where}: there is no column {self.key!r} for the keys; {there}. Name the one with the keys (key=…, --key …); "
                "what is beside it is the state: one column called 'value', or one that you name (value=…, --value …), or one "
                "for each field"
            )
        if self.value is None:
            return {name: name for name in names if name != self.key}
        if self.value not in names:
            raise ConfigError(f"{where}: there is no column {self.value!r} for the state; {there} (value=…, --value …)")
        return {self.value: VALUE}


def expected_type(spec: StateSpec) -> Any:
    """Return the type of an operator's states: the declared one, or the one that a plain default tells; None: not known."""
    if spec.type is not None or spec.codec is not None:
        return spec.type
    return _PLAIN.get(type(spec.factory()()))


def record_fields(kind: Any) -> frozenset[str]:
    """Return the names under which a record's fields are stored; none where it is no record."""
    info = type_info(kind)
    return frozenset(field.encode_name for field in info.fields) if isinstance(info, RECORDS) else frozenset()


def check_columns(
    operator: str, expected: Any, columns: Mapping[str, pa.DataType | None], key: str, where: str
) -> None:
    """Refuse columns beside the key that are no state of the operator, with a `StateError` that says what to do.

    `expected` is the type of its states, `where` what the columns are of, such as a file. `columns` are those beside the
    key, each with its type, or None where only its values tell.
    """
    info = alone(expected)
    if isinstance(info, RECORDS) and list(columns) != [VALUE]:
        fields = {field.encode_name: field for field in info.fields}
        unknown = [name for name in columns if name not in fields]
        missing = [name for name, field in fields.items() if field.required and name not in columns]
        wanted = f"its state is of type {info.cls.__name__}, with {_fields(fields)}"
        if unknown:
            raise _refusal(operator, where, f"{wanted}, and there is the column {unknown[0]!r}", columns, key)
        if missing:
            raise _refusal(operator, where, f"{wanted}, and there is no column {missing[0]!r}", columns, key)
        for name, kind in columns.items():
            _check_type(operator, where, name, fields[name].type, kind)
    elif not isinstance(info, _OPEN):
        if list(columns) != [VALUE]:
            only = next(iter(columns)) if len(columns) == 1 else "…"
            wanted = (
                f"its state is a plain {type_name(info)}, which is in a column called {VALUE!r}, or in one that you name "
                f"(value={only!r}, --value {only})"
            )
            raise _refusal(operator, where, wanted, columns, key)
        _check_type(operator, where, VALUE, info, columns[VALUE])


def type_info(expected: Any) -> inspect.Type:
    """Return what is known of a type."""
    try:
        return inspect.type_info(Any if expected is None else expected)
    except (TypeError, NotImplementedError):
        return inspect.AnyType()  # A type that only a codec of the user's own can store.


def alone(expected: Any) -> inspect.Type:
    """Return what is known of a type; of one that may be None, what else it is."""
    info = type_info(expected)
    if isinstance(info, inspect.UnionType):
        others = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        if {type(each) for each in others} == {inspect.IntType, inspect.FloatType}:
            return inspect.FloatType()
        return others[0] if len(others) == 1 else info
    return info


def _check_type(operator: str, where: str, column: str, wanted: inspect.Type, found: pa.DataType | None) -> None:
    """Refuse a column of another type, where both are simple; of others the values tell."""
    if found is None or isinstance(wanted, inspect.UnionType):
        return
    fits = _FITTING.get(type(wanted))
    plain = found.value_type if pa.types.is_dictionary(found) else found
    if fits is not None and not fits(plain) and any(known(plain) for known in _KNOWN):
        raise StateError(
            f"state cannot be imported into {operator!r} from {where}: the column {column!r} is of type {found}, and the program "
            f"has {type_name(wanted)} there; cast the column, or name another one, or change state= or default= of the operator"
        )


def _refusal(operator: str, where: str, wanted: str, columns: Mapping[str, pa.DataType | None], key: str) -> StateError:
    found = ", ".join(name if kind is None else f"{name} ({kind})" for name, kind in columns.items()) or "no column"
    return StateError(
        f"state cannot be imported into {operator!r} from {where}: {wanted}. Found {found} beside the key {key!r}; rename the "
        "columns, leave out those that are not its state, or name another column for the keys (key=…, --key …)"
    )


def _fields(fields: dict[str, inspect.Field]) -> str:
    return ", ".join(f"{name}: {type_name(field.type)}" for name, field in fields.items())


def type_name(info: inspect.Type) -> str:
    """Return what a user calls a type."""
    named = getattr(info, "cls", None)
    return type(info).__name__.removesuffix("Type").lower() if named is None else named.__name__
