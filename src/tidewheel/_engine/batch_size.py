"""The size of the next batch, so that it takes about the wanted time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FIRST = 1000
"""The size of a batch before the speed is known: records, or bytes of files."""
RECENT = 6
"""The number of recent batches from which the speed of the job is estimated."""
_LEAST_SLOPE = 0.25
"""The least share of a batch's time that is assumed to depend on its size: times vary, and a guess must not make it too long."""


class Done(NamedTuple):
    """A batch: how much of a source it had, and how long it took."""

    amount: int
    seconds: float


def next_amount(recent: Sequence[Done], target: float) -> int:
    """Return how much the next batch may have, so that it takes about `target` seconds. Pure.

    A part of a batch's time does not depend on its size, and two batches of different sizes tell how long it is: now and then
    a batch is made half as large to find out. Where that part is longer than half of the target, a smaller batch would hardly
    be shorter, and the job would fall behind: such a batch has as much as takes that time again.

    >>> next_amount([], 2.0), next_amount([Done(1000, 0.5)], 2.0)
    (1000, 4000)
    >>> next_amount([Done(1000, 1.2), Done(2000, 1.4)], 1.0)  # 1 second whatever it has, and 5,000 a second
    5000
    """
    known = [done for done in recent[-RECENT:] if done.amount > 0 and done.seconds > 0]
    if not known:
        return FIRST
    last, small, large = known[-1], min(known), max(known)
    slope = last.seconds / last.amount
    if large.amount >= 2 * small.amount:
        between = (large.seconds - small.seconds) / (large.amount - small.amount)
        slope = min(max(between, slope * _LEAST_SLOPE), slope)
    elif len(known) == RECENT:
        return last.amount // 2 or 2
    fixed = last.seconds - slope * last.amount
    return max(1, int(max(target - fixed, fixed) / slope))
