"""Find the keys with due windows, if each key has one timer for its first due window, and one for early results."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidewheel._core.keys import from_stored
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.timers import TimerTable
from tidewheel._time.panes import Flags, Ints

EARLY = "early"
"""The name of the timer for early results."""


def due_keys(timers: TimerTable, shards: Iterable[int], epoch: int) -> tuple[KeyBatch, Ints, Flags]:
    """Cancel the timers that an epoch has reached; return their keys in stored order.

    Also return the first time of each key, and whether its early results are due. An unfired timer of any name is after
    the last epoch, so no window that ends at the first time or later has been emitted. A key can have several timers:
    a changed lateness changes due times, and earlier versions set one timer per session.
    """
    stored: list[bytes] = []
    firsts: list[int] = []
    early: list[bool] = []
    slices: dict[int, slice] = {}
    for shard in shards:
        due = timers.take_due(shard, epoch)
        if due:
            slices[shard] = slice(len(stored), len(stored) + len(due))
            stored += due
            firsts += [first for first, _ in due.values()]
            early += [EARLY in names for _, names in due.values()]
    key_batch = KeyBatch([from_stored(key) for key in stored], [], stored, slices)
    return key_batch, np.array(firsts, np.int64), np.array(early, bool)
