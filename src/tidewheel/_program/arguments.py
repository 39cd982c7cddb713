"""What steps are given, checked when the graph is built."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection
from typing import Any, Protocol, TypeVar

import msgspec

from tidewheel._core.text import listed, shortened
from tidewheel._operators.aggregates.functions import Aggregate
from tidewheel._operators.annotations import parameter, returned
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
    """A function or class that makes the state of a new key.

    Written as a `Callable`, it would tell mypy nothing about the state until the function of the step has been looked at.
    """

    def __call__(self) -> Made:
        """Make one."""


Errors = tuple[type[Exception], ...]
"""Classes of errors."""


def checked_errors(name: str, retry: Any) -> Errors:
    """Return the errors that a step is to retry; refuse what is no class of errors."""
    errors = retry if isinstance(retry, tuple) else (retry,)
    for error in errors:
        if not isinstance(error, type) or not issubclass(error, Exception):
            raise GraphError(f"operator {name!r}: retry= takes classes of errors, such as (MyError,), not {error!r}")
    return errors


def checked_function(name: str, function: Any, *arguments: str) -> Any:
    """Return the function of a step; refuse what cannot be called, or not with these arguments."""
    if not callable(function):
        raise GraphError(
            f"operator {name!r}: it takes a function as its second argument, not {type(function).__name__}"
        )
    reason = _not_callable_with(function, arguments)
    if reason is not None:
        raise GraphError(f"operator {name!r}: its function is called with {listed(arguments)}, and {reason}")
    return function


def check_pair(name: str, function: Any) -> None:
    """Refuse a function of a `stateful_map` whose annotations have its output and its state the wrong way round."""
    state = parameter(function, 2)
    first, second = _pair_of(returned(function))
    # Two classes of which one can stand for the other, as an int for a float, may well be meant.
    if first is state and _are_apart(state, second):
        raise GraphError(
            f"operator {name!r}: its function returns the output first and the new state second, and is annotated to return its "
            f"state, {state.__name__}, first: write tuple[{second.__name__}, {state.__name__}]"
        )


def _pair_of(annotation: Any) -> tuple[Any, Any]:
    """Return the two types of a pair; twice None if it is none."""
    kinds = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else ()
    return kinds if len(kinds) == 2 else (None, None)


def _are_apart(one: Any, other: Any) -> bool:
    """Tell whether no value is of both classes, as far as is known."""
    if not (isinstance(one, type) and isinstance(other, type)) or typing.get_args(one) or typing.get_args(other):
        return False
    return not (issubclass(one, other) or issubclass(other, one) or {one, other} <= {bool, int, float, complex})


def checked_upgrade(name: str, upgrade: Any, *arguments: str) -> Any:
    """Return what makes a step's state of that of an older version; refuse what cannot be called with such arguments."""
    arguments = arguments or ("state", "version")
    reason: str | None = f"{shortened(upgrade, 200)} is no function"
    if callable(upgrade):
        reason = _not_callable_with(upgrade, arguments)
    if upgrade is not None and reason is not None:
        raise GraphError(
            f"operator {name!r}: upgrade= is called with a stored {arguments[0]} and the version that it has"
            f"{', and the side' if len(arguments) > 2 else ''}, and returns today's {arguments[0]}, "
            f'as in upgrade=lambda {", ".join(arguments)}: {{"total": {arguments[0]}}}; {reason}'
        )
    return upgrade


def _not_callable_with(function: Any, arguments: tuple[str, ...]) -> str | None:
    """Return why a function cannot be called with so many arguments; None: it can, or does not tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # Some that are written in C do not tell.
    try:
        signature.bind(*arguments)
    except TypeError as error:
        called = getattr(function, "__qualname__", type(function).__name__)
        return f"{called}{signature} cannot be: {error}"
    return None


def checked_aggregates(name: str, aggregates: dict[str, Any]) -> dict[str, Aggregate]:
    """Return the aggregates of a step; refuse values that are not aggregates."""
    for label, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise GraphError(
                f"operator {name!r}: {label}={shortened(aggregate, 200)} is not an aggregate; use sum_, count, min_, max_ or mean"
            )
    return aggregates


def checked_state(name: str, spec: StateSpec) -> StateSpec:
    """Return how a step's state begins; refuse a type that cannot be made from nothing, and a default that is not of the type."""
    try:
        spec.factory()
    except GraphError as error:
        raise GraphError(f"operator {name!r}: {error}") from None
    made = typing.get_origin(spec.default) or spec.default
    if isinstance(made, type):
        if made in _BUILT_IN:
            _check_default(name, spec, made())
    elif made is not None and not callable(made):
        _check_default(name, spec, made)
    return spec


def _check_default(name: str, spec: StateSpec, default: Any) -> None:
    """Refuse a default that is certain not to be of the state's type. What is inside of it may become what is declared."""
    if spec.type is None or spec.codec is not None or _may_be(default, spec.type):
        return
    declared = spec.type.__name__ if isinstance(spec.type, type) else spec.type
    raise GraphError(
        f"operator {name!r}: its state is declared as {declared}, and begins as {shortened(default, 200)}, of type "
        f"{type(default).__name__}; give a default= of that type, or declare what the state is: with state=, or by the "
        "annotation of the function"
    )


def _may_be(value: Any, declared: Any) -> bool:
    kind = typing.get_origin(declared) or declared
    if kind is typing.Annotated:
        # What it says beside the type, such as a least value, holds for what is stored. A default need not be.
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
        return True  # Of a type that msgspec does not know nothing is certain.
    return True


def single_column(source: str, shape: Shape, columns: Collection[str] | None) -> str:
    """Return the column that a source's plain values are in, of those that it has; None: they are not known yet."""
    if columns is None or shape.column in columns:
        return shape.column
    if len(columns) == 1:
        return next(iter(columns))
    raise GraphError(
        f"source {source!r}: value={shape.describe()} is a single column, {shape.column!r}, and it has {', '.join(columns)}; "
        "declare a dataclass with the fields that you need, or leave value= out and take row.…"
    )


def checked_ttl(name: str, duration: Duration | None, clock: Clock) -> Ttl | None:
    """Return how long a step's state lives, None if for ever."""
    return None if duration is None else Ttl(nanoseconds(duration, f"operator {name!r}: the ttl", 1), clock)


def checked_duration(option: str, duration: Duration | None) -> int | None:
    """Return an optional duration in ns; None stays None."""
    return None if duration is None else nanoseconds(duration, option)
