"""Combiner: what shrinks a keyed stream before the shuffle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tidewheel.values import Batch, Shape


class Combiner(ABC):
    """Takes messages on the near side of a shuffle and gives fewer, of its own shape, to the operator behind it."""

    shape: Shape

    @abstractmethod
    def add(self, batch: Batch) -> Iterator[Batch]:
        """Take messages; yield when enough has gathered."""

    @abstractmethod
    def finish(self) -> Iterator[Batch]:
        """Yield what is left."""
