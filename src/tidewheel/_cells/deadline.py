"""A point in time until which something may take."""

from __future__ import annotations

import time


class Deadline:
    """Seconds from now on the monotonic clock."""

    __slots__ = ("at",)

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, not below 0."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.at
