"""How far the operators of each shard were told that time has come. Pure.

All shards of a job were told its delivered epoch, but for those that came from a holder whose clock was behind: what waits in
them for an epoch up to the delivered one is still owed. The next batch tells them, before anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Behind = Mapping[int, int | None]
"""By shard: the epoch that it was told last, None for none. Only shards that are behind the delivered epoch."""


def latest(epochs: Iterable[int | None]) -> int | None:
    """Return the latest of several epochs; None where there is none.

    >>> latest([3, None, 7])
    7
    """
    return max((epoch for epoch in epochs if epoch is not None), default=None)


def earliest(epochs: Iterable[int | None]) -> int | None:
    """Return the earliest of several epochs; None, which says that there was none yet, is before all.

    >>> earliest([3, 7]), earliest([3, None])
    (3, None)
    """
    listed = list(epochs)
    return None if None in listed else min((epoch for epoch in listed if epoch is not None), default=None)


def behind(told: Mapping[int, int | None], delivered: int | None) -> dict[int, int | None]:
    """Return the shards that were told less than the delivered epoch.

    >>> behind({0: 5, 1: None, 2: 9}, 9)
    {0: 5, 1: None}
    """
    return {
        shard: epoch for shard, epoch in told.items() if epoch != delivered and earliest((epoch, delivered)) == epoch
    }


def told(shard: int, delivered: int | None, behind: Behind) -> int | None:
    """Return the epoch that a shard was told last."""
    return behind.get(shard, delivered)
