"""The time of a batch."""

from __future__ import annotations

SKEW = 60_000_000_000
"""The assumed maximum difference between the clocks of a job's hosts, in ns: a minute."""


def batch_time(clock: int, last: int) -> int:
    """Return the time of the next batch, from the machine's clock and the time of the newest commit.

    The time does not go back if another host's clock was slightly ahead. If it was further ahead, it was wrong: the
    time then follows the machine's clock, because it would otherwise stand still for as long as the other clock was
    ahead.

    >>> batch_time(100, 90), batch_time(100, 110), batch_time(100, 110 + SKEW)
    (100, 110, 100)
    """
    return last if clock < last <= clock + SKEW else clock
