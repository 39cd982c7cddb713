"""Combiner: reduce a keyed stream before the shuffle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tidewheel._values import Batch, Shape


class Combiner(ABC):
    """Receives messages before a shuffle and sends fewer messages to the step after it."""

    shape: Shape | None = None
    """The shape of its output messages; None if it is the shape of its input."""

    @abstractmethod
    def add(self, batch: Batch) -> Iterator[Batch]:
        """Add messages; yield results when enough messages are collected."""

    @abstractmethod
    def finish(self) -> Iterator[Batch]:
        """Yield the remaining results."""
