"""Find overlapping time intervals for many keys at once, as a pure function over arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidewheel._time.panes import Flags, Ints


def overlapping(keys: npt.NDArray[Any], starts: Ints, ends: Ints) -> tuple[Ints, Flags]:
    """Return the order of intervals by key and start, and which of them, in that order, no earlier interval of the key reaches.

    An interval includes its start but not its end, so adjacent intervals do not overlap. Keys are numbers from 0.

    >>> order, new = overlapping(np.array([1, 0, 1, 1]), np.array([5, 9, 1, 3]), np.array([8, 12, 4, 5]))
    >>> order.tolist(), new.tolist()
    ([1, 2, 3, 0], [True, True, False, True])
    """
    order = np.lexsort((starts, keys))
    keys, starts, ends = keys[order].astype(np.int64), starts[order], ends[order]
    # The largest end so far of each key: as ranks, so that key and end together fit in 64 bits.
    distinct, ranks = np.unique(ends, return_inverse=True)
    reached = np.maximum.accumulate(keys * len(distinct) + ranks)
    new = np.ones(len(order), bool)
    new[1:] = (keys[1:] != keys[:-1]) | (starts[1:] >= distinct[reached[:-1] % max(len(distinct), 1)])
    return order, new
