"""Things that are closed once they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self


class Closing:
    """Has a `close`, which a `with` block calls at its end."""

    close: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
