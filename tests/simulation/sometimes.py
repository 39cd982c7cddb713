"""Events that must occur in a run of the suite: a simulation in which they never happen tests less than it seems."""

from __future__ import annotations

from collections import Counter

counts: Counter[str] = Counter()


def sometimes(event: str, happened: bool = True) -> None:
    """Count an event of the lists below."""
    if happened:
        counts[event] += 1
