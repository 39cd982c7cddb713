"""A clock that the test moves."""

from __future__ import annotations

NOON = 1_767_268_800_000_000_000
"""2026-01-01 12:00 UTC, which is no boundary of a day or hour window."""


class Clock:
    """A clock in ns since the Unix epoch, like the time of a batch.

    >>> clock = Clock(0)
    >>> clock.advance(1.5)
    >>> clock.now
    1500000000
    """

    def __init__(self, now: int = NOON) -> None:
        """Set it."""
        self.now = now

    def __call__(self) -> int:
        """Return the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back: advance takes seconds from 0 on, not {seconds}")
        self.now += round(seconds * 1_000_000_000)
