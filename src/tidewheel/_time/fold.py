"""Fold: how the values of a window become one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fold:
    """Begin with `default()`, take in one value after the other with `add`, and finish with `result`.

    `merge` makes one of two that were begun apart, which a session needs: two of them can grow together.
    """

    default: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None = None
    result: Callable[[int, int, Any, bool], Any] | None = None
    """What goes out, from start, end, the folded values, and whether it is a correction."""
