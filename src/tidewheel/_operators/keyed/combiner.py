"""Combiner: what shrinks a keyed stream before the shuffle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tidewheel._values import Batch, Shape


class Combiner(ABC):
    """Takes messages on the near side of a shuffle and gives fewer to the operator behind it."""

    shape: Shape | None = None
    """The shape of the messages that it gives; None: that of the messages that it takes."""

    @abstractmethod
    def add(self, batch: Batch) -> Iterator[Batch]:
        """Take messages; yield when enough has gathered."""

    @abstractmethod
    def finish(self) -> Iterator[Batch]:
        """Yield what is left."""
