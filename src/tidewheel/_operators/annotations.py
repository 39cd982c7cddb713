"""The type annotations of a user's function."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the resolved annotations of a function; empty if there are none or they cannot be resolved."""
    try:
        return typing.get_type_hints(function)
    except Exception:
        return {}


def returned(function: Callable[..., Any]) -> Any:
    """Return the annotated return type, or None."""
    return hints(function).get("return")


def item_of(annotation: Any) -> Any:
    """Return T of Iterable[T], list[T] or Iterator[T], or None."""
    arguments = typing.get_args(annotation)
    return arguments[0] if len(arguments) >= 1 and typing.get_origin(annotation) is not dict else None


def parameter(function: Callable[..., Any], position: int) -> Any:
    """Return the annotation of the parameter at this position, or None."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    return hints(function).get(names[position]) if position < len(names) else None
