"""Checks of the arguments of steps, made when the graph is built."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection
from typing import Any, Protocol, TypeVar

import msgspec

from tidewheel._core.text import listed, shortened
from tidewheel._operators.aggregates.functions import Aggregate, for_types
from tidewheel._operators.annotations import parameter, returned
from tidewheel._operators.field_getter import FieldGetter
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.ttl import Ttl
from tidewheel._state.timers import Clock
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._values import Shape
from tidewheel._values.records import is_record
from tidewheel.errors import GraphError

Made = TypeVar("Made", covariant=True)

_BUILT_IN = frozenset({bool, int, float, str, bytes, list, dict, set, tuple, frozenset})


class Factory(Protocol[Made]):
    """A function or class that creates the state of a new key.

    A protocol, not a `Callable`: mypy could not infer the state's type from a `Callable` before it has checked the
    step's function.
    """

    def __call__(self) -> Made:
        """Create one state."""


Errors = tuple[type[Exception], ...]
"""A tuple of exception classes."""


def checked_errors(name: str, retry: Any) -> Errors:
    """Return the exception classes that a step retries; raise if one is not an exception class."""
    errors = retry if isinstance(retry, tuple) else (retry,)
    for error in errors:
        if not isinstance(error, type) or not issubclass(error, Exception):
            raise GraphError(f"step {name!r}: retry= takes classes of errors, such as (MyError,), not {error!r}")
    return errors


def checked_function(name: str, function: Any, *arguments: str) -> Any:
    """Return the function of a step; raise if it cannot be called with these arguments.

    A column's name stands for a function of the value that returns that column.
    """
    if isinstance(function, str) and arguments == ("value",):
        return FieldGetter(function)
    if not callable(function):
        raise GraphError(f"step {name!r}: it takes a function as its second argument, not {type(function).__name__}")
    reason = _not_callable_with(function, arguments)
    if reason is not None:
        raise GraphError(f"step {name!r}: its function is called with {listed(arguments)}, and {reason}")
    return function


def check_pair(name: str, function: Any) -> None:
    """Raise if the annotations of a `stateful_map` function return the state first and the output second."""
    state = parameter(function, 2)
    first, second = _pair_of(returned(function))
    # If one class can be used as the other, such as an int as a float, the order may be intended.
    if first is state and _are_apart(state, second):
        raise GraphError(
            f"step {name!r}: its function returns the output first and the new state second, and is annotated to return its "
            f"state, {state.__name__}, first: write tuple[{second.__name__}, {state.__name__}]"
        )


def _pair_of(annotation: Any) -> tuple[Any, Any]:
    """Return the two types of a pair, or `(None, None)` if the annotation is not a pair."""
    kinds = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else ()
    return kinds if len(kinds) == 2 else (None, None)


def _are_apart(one: Any, other: Any) -> bool:
    """Return whether, as far as is known, no value can belong to both classes."""
    if not (isinstance(one, type) and isinstance(other, type)) or typing.get_args(one) or typing.get_args(other):
        return False
    return not (issubclass(one, other) or issubclass(other, one) or {one, other} <= {bool, int, float, complex})


def checked_upgrade(name: str, upgrade: Any, *arguments: str) -> Any:
    """Return the upgrade function of a step; raise if it cannot be called with these arguments."""
    arguments = arguments or ("state", "version")
    reason: str | None = f"{shortened(upgrade, 200)} is not a function"
    if callable(upgrade):
        reason = _not_callable_with(upgrade, arguments)
    if upgrade is not None and reason is not None:
        raise GraphError(
            f"step {name!r}: upgrade= is called with a stored {arguments[0]} and the version that it has"
            f"{', and the side' if len(arguments) > 2 else ''}, and returns the new {arguments[0]}, "
            f'as in upgrade=lambda {", ".join(arguments)}: {{"total": {arguments[0]}}}; {reason}'
        )
    return upgrade


def _not_callable_with(function: Any, arguments: tuple[str, ...]) -> str | None:
    """Return why a function cannot be called with these arguments; None if it can or its signature is unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # Some functions that are written in C have no signature.
    try:
        signature.bind(*arguments)
    except TypeError as error:
        called = getattr(function, "__qualname__", type(function).__name__)
        return f"{called}{signature} cannot be: {error}"
    return None


def checked_aggregates(name: str, aggregates: dict[str, Any], shape: Shape) -> dict[str, Aggregate]:
    """Return the aggregates of a step, for values of a shape; raise if one of them is not an aggregate."""
    for label, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise GraphError(
                f"step {name!r}: {label}={shortened(aggregate, 200)} is not an aggregate; use agg.sum, agg.count or another "
                "function of tidewheel.agg"
            )
    return for_types(aggregates, shape)


def checked_state(name: str, spec: StateSpec) -> StateSpec:
    """Return a step's initial state; raise if its type has no default value or the default does not match the type."""
    try:
        spec.factory()
    except GraphError as error:
        raise GraphError(f"step {name!r}: {error}") from None
    made = typing.get_origin(spec.default) or spec.default
    if isinstance(made, type):
        if made in _BUILT_IN:
            _check_default(name, spec, made())
    elif made is not None and not callable(made):
        _check_default(name, spec, made)
    return spec


def _check_default(name: str, spec: StateSpec, default: Any) -> None:
    """Raise if a default cannot match the state's type. The contents of containers are not checked."""
    if spec.type is None or spec.codec is not None or _may_be(default, spec.type):
        return
    declared = spec.type.__name__ if isinstance(spec.type, type) else spec.type
    raise GraphError(
        f"step {name!r}: its state is declared as {declared}, and begins as {shortened(default, 200)}, of type "
        f"{type(default).__name__}; give a default= of that type, or declare what the state is: with state=, or by the "
        "annotation of the function"
    )


def _may_be(value: Any, declared: Any) -> bool:
    kind = typing.get_origin(declared) or declared
    if kind is typing.Annotated:
        # Constraints of the annotation, such as a minimum, apply to stored values. A default need not meet them.
        return _may_be(value, typing.get_args(declared)[0])
    if kind in (typing.Union, types.UnionType):
        return any(_may_be(value, member) for member in typing.get_args(declared))
    try:
        if is_record(kind):
            return isinstance(value, kind)
        if typing.is_typeddict(kind):
            return isinstance(value, dict)
        if (kind is bool and isinstance(value, int)) or (isinstance(kind, type) and isinstance(value, kind)):
            return True
        msgspec.convert(value, declared)
    except msgspec.ValidationError:
        return False
    except Exception:
        return True  # msgspec does not know this type, so nothing can be ruled out.
    return True


def single_column(source: str, shape: Shape, columns: Collection[str] | None) -> str:
    """Return the column with a source's plain values. `columns` is None while they are unknown."""
    if columns is None or shape.column in columns:
        return shape.column
    if len(columns) == 1:
        return next(iter(columns))
    raise GraphError(
        f"source {source!r}: type={shape.describe()} is a single column, {shape.column!r}, and it has {', '.join(columns)}; "
        "declare a dataclass with the fields that you need, or leave type= out and take row.…"
    )


def checked_ttl(name: str, duration: Duration | None, clock: Clock) -> Ttl | None:
    """Return the time to live of a step's state; None if the state never expires."""
    return None if duration is None else Ttl(nanoseconds(duration, f"step {name!r}: the ttl", 1), clock)


def checked_duration(option: str, duration: Duration | None) -> int | None:
    """Return an optional duration in nanoseconds; None stays None."""
    return None if duration is None else nanoseconds(duration, option)
