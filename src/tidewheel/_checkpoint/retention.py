"""Decide which records of a commit chain can be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidewheel._checkpoint.pins import Pin
from tidewheel.errors import ConfigError


def check_keep(keep: int) -> int:
    """Return the number of checkpoints to keep; raise if it is below 1, because the newest always stays."""
    if keep < 1:
        raise ConfigError(f"the number of checkpoints to keep must be at least 1, not {keep}")
    return keep


def oldest_kept(
    sequences: Sequence[int], keep: int, pins: Iterable[Pin] = (), now: int = 0, young: int | None = None
) -> int | None:
    """Return the sequence below which records can be deleted, or `None` if there are no records.

    The newest `keep` records stay, and all from the sequence `young` on, the first that is too young to be deleted. The
    checkpoint of every pin without a copy that has not expired stays too, with all later records: records are deleted
    in ascending order, so that the chain has no gaps. A savepoint has its own copy and keeps no record.

    >>> oldest_kept([3, 4, 5, 6], keep=2)
    5
    """
    check_keep(keep)
    if not sequences:
        return None
    ordered = sorted(sequences)
    bound = ordered[max(0, len(ordered) - keep)]
    if young is not None:
        bound = min(bound, max(young, ordered[0]))
    held = (pin.sequence for pin in pins if pin.manifest is None and pin.holds(now))
    return min((sequence for sequence in held if ordered[0] <= sequence < bound), default=bound)
