"""A base class for objects with a `close` method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self


class Closing:
    """Base of objects with a `close` method, which a `with` block calls at its end."""

    close: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
