"""The last epoch that each shard of a job received.

Usually that is the job's delivered epoch. A shard from a holder whose clock was behind has received less: work that
waits in it for an epoch up to the delivered one is still due. The next batch first gives it the delivered epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Behind = Mapping[int, int | None]
"""The shards that are behind the delivered epoch, each with the last epoch that it received, None for none."""


def latest(epochs: Iterable[int | None]) -> int | None:
    """Return the latest of several epochs; None if there is none.

    >>> latest([3, None, 7])
    7
    """
    return max((epoch for epoch in epochs if epoch is not None), default=None)


def earliest(epochs: Iterable[int | None]) -> int | None:
    """Return the earliest of several epochs. None, for no epoch yet, is before all others.

    >>> earliest([3, 7]), earliest([3, None])
    (3, None)
    """
    listed = list(epochs)
    return None if None in listed else min((epoch for epoch in listed if epoch is not None), default=None)


def shards_behind(epochs: Mapping[int, int | None], delivered: int | None) -> dict[int, int | None]:
    """Return the shards that received less than the delivered epoch.

    >>> shards_behind({0: 5, 1: None, 2: 9}, 9)
    {0: 5, 1: None}
    """
    return {
        shard: epoch for shard, epoch in epochs.items() if epoch != delivered and earliest((epoch, delivered)) == epoch
    }


def epoch_of(shard: int, delivered: int | None, behind: Behind) -> int | None:
    """Return the last epoch that a shard received."""
    return behind.get(shard, delivered)
