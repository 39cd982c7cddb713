"""The keys whose windows have something due, where a key has one timer for the first of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidewheel._core.keys import from_stored
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.timers import TimerTable
from tidewheel._time.panes import Ints


def due_keys(timers: TimerTable, shards: Iterable[int], epoch: int) -> tuple[KeyBatch, Ints]:
    """Cancel the timers that an epoch has reached; return their keys in the order of the store, and the first time of each.

    A key may have several: a changed lateness changes when something is due, and earlier versions set one for each session.
    """
    stored: list[bytes] = []
    firsts: list[int] = []
    slices: dict[int, slice] = {}
    for shard in shards:
        due = timers.take_due(shard, epoch)
        if due:
            slices[shard] = slice(len(stored), len(stored) + len(due))
            stored += due
            firsts += due.values()
    return KeyBatch([from_stored(key) for key in stored], [], stored, slices), np.array(firsts, np.int64)
