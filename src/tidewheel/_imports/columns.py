"""Check that the columns of a table fit a step's state, before the first row is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
RECORDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_OPEN = (*RECORDS, inspect.NamedTupleType, inspect.DictType, inspect.AnyType, inspect.CustomType, inspect.UnionType)
"""Types whose values may have several columns, and unknown types."""


@dataclass(frozen=True)
class StateColumns:
    """Which columns of a table are keys and which are state."""

    key: str = "key"
    value: str | None = None
    """The column that is the whole state; None: all columns except the key."""

    def fields(self, names: Sequence[str], where: str) -> dict[str, str]:
        """Return the columns with state, each with the name that the step's state has for it.

        Raise a `ConfigError` if a column is missing; `where` names the owner of the columns.
        """
        there = f"the columns are {', '.join(names)}"
        if self.key not in names:
            raise ConfigError(
                f"{where}: there is no column {self.key!r} for the keys; {there}. Name the one with the keys (key=…, --key …); "
                "the other columns are the state: one column called 'value', or one that you name (value=…, --value …), or one "
                "for each field"
            )
        if self.value is None:
            return {name: name for name in names if name != self.key}
        if self.value not in names:
            raise ConfigError(f"{where}: there is no column {self.value!r} for the state; {there} (value=…, --value …)")
        return {self.value: VALUE}


def expected_type(spec: StateSpec) -> Any:
    """Return the type of a step's states: the declared type, or that of a plain default; None if unknown."""
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
    """Raise a `StateError` if the columns other than the key cannot be state of the step.

    `expected` is the type of its states, `where` names the file or table. `columns` are the columns other than the key, each
    with its type, or None if only the values show it.
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
    elif not isinstance(info, _OPEN) and list(columns) != [VALUE]:
        only = next(iter(columns)) if len(columns) == 1 else "…"
        wanted = (
            f"its state is a plain {type_name(info)}, which is in a column called {VALUE!r}, or in one that you name "
            f"(value={only!r}, --value {only})"
        )
        raise _refusal(operator, where, wanted, columns, key)


def type_info(expected: Any) -> inspect.Type:
    """Return msgspec's description of a type."""
    try:
        return inspect.type_info(Any if expected is None else expected)
    except (TypeError, NotImplementedError):
        return inspect.AnyType()  # A type that only a codec of the user's own can store.


def alone(expected: Any) -> inspect.Type:
    """Return msgspec's description of a type, without None for an optional type."""
    info = type_info(expected)
    if isinstance(info, inspect.UnionType):
        others = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        if {type(each) for each in others} == {inspect.IntType, inspect.FloatType}:
            return inspect.FloatType()
        return others[0] if len(others) == 1 else info
    return info


def _refusal(operator: str, where: str, wanted: str, columns: Mapping[str, pa.DataType | None], key: str) -> StateError:
    found = ", ".join(name if kind is None else f"{name} ({kind})" for name, kind in columns.items()) or "no column"
    return StateError(
        f"state cannot be imported into {operator!r} from {where}: {wanted}. Found {found} and the key {key!r}; rename the "
        "columns, leave out those that are not its state, or name another column for the keys (key=…, --key …)"
    )


def _fields(fields: dict[str, inspect.Field]) -> str:
    return ", ".join(f"{name}: {type_name(field.type)}" for name, field in fields.items())


def type_name(info: inspect.Type) -> str:
    """Return the name of a type for users."""
    named = getattr(info, "cls", None)
    return type(info).__name__.removesuffix("Type").lower() if named is None else named.__name__
