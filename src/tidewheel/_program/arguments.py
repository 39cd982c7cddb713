"""What steps are given, checked when the graph is built."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any, Protocol, TypeVar

from tidewheel._core.text import listed
from tidewheel._operators.aggregates.functions import Aggregate
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._operators.keyed.ttl import Ttl
from tidewheel._state.timers import Clock
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._values import Shape
from tidewheel.errors import GraphError

Made = TypeVar("Made", covariant=True)


class Factory(Protocol[Made]):
    """A function or class that makes the state of a new key.

    Written as a `Callable`, it would tell mypy nothing about the state until the function of the step has been looked at.
    """

    def __call__(self) -> Made:
        """Make one."""


def checked_function(name: str, function: Any, *arguments: str) -> Any:
    """Return the function of a step; refuse what cannot be called, or not with these arguments."""
    if not callable(function):
        raise GraphError(
            f"operator {name!r}: it takes a function as its second argument, not {type(function).__name__}"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function  # Some that are written in C do not tell.
    try:
        signature.bind(*arguments)
    except TypeError as error:
        called = getattr(function, "__qualname__", type(function).__name__)
        raise GraphError(
            f"operator {name!r}: its function is called with {listed(arguments)}, and {called}{signature} cannot be: {error}"
        ) from None
    return function


def checked_aggregates(name: str, aggregates: dict[str, Any]) -> dict[str, Aggregate]:
    """Return the aggregates of a step; refuse values that are not aggregates."""
    for label, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise GraphError(
                f"operator {name!r}: {label}={aggregate!r} is not an aggregate; use sum_, count, min_, max_ or mean"
            )
    return aggregates


def checked_state(name: str, spec: StateSpec) -> StateSpec:
    """Return how a step's state begins, or refuse a type that cannot be made from nothing."""
    try:
        spec.factory()
    except GraphError as error:
        raise GraphError(f"operator {name!r}: {error}") from None
    return spec


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
