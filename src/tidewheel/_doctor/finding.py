"""Finding: the result of one check."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["fine", "slow", "missing"]
"""`slow`: a job runs, but not well. `missing`: a job cannot run."""


class Finding(msgspec.Struct, frozen=True):
    """What a check found, and the line that fixes it."""

    subject: str
    level: Level
    text: str
    fix: str = ""


def fine(subject: str, text: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(subject, "fine", text)


def missing(subject: str, text: str, fix: str = "") -> Finding:
    """Return a finding that keeps a job from running."""
    return Finding(subject, "missing", text, fix)


def timed(subject: str, text: str, milliseconds: float, limit: float, fix: str) -> Finding:
    """Return a finding that is slow above a limit in milliseconds.

    >>> timed("state", "a commit", 12.0, 250, "use a store that is closer").text
    'a commit takes 12 ms'
    """
    told = f"{text} takes {milliseconds:,.0f} ms"
    if milliseconds <= limit:
        return fine(subject, told)
    return Finding(subject, "slow", f"{told}; up to {limit:,.0f} ms are normal", fix)


def clock(subject: str, seconds_ahead: float) -> Finding:
    """Return a finding about a clock that is this many seconds ahead of this machine's.

    >>> clock("state", -90.0).level
    'slow'
    """
    if abs(seconds_ahead) <= CLOCK_SECONDS:
        return fine(subject, f"its clock is within {CLOCK_SECONDS:.0f} s of this machine's")
    which = "ahead of" if seconds_ahead > 0 else "behind"
    text = f"its clock is {abs(seconds_ahead):,.0f} s {which} this machine's: ages and lags will be wrong"
    return Finding(subject, "slow", text, "synchronise the clocks, for example with chrony or systemd-timesyncd")


CLOCK_SECONDS = 5.0
