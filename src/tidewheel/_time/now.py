"""The time of a batch. Pure."""

from __future__ import annotations

SKEW = 60_000_000_000
"""How far apart the clocks of a job's hosts may be, in ns: a minute."""


def batch_time(clock: int, last: int) -> int:
    """Return the time of the next batch, from the machine's clock and the time of the newest commit.

    It does not go back where another host's clock was a little ahead. One that was further ahead was wrong: the time then
    goes on from the machine's clock, since it would stand still for as long as the other was ahead.

    >>> batch_time(100, 90), batch_time(100, 110), batch_time(100, 110 + SKEW)
    (100, 110, 100)
    """
    return last if clock < last <= clock + SKEW else clock
