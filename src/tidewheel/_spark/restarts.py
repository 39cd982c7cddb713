"""After a failure: run again from the last commit, or give up. Decided here, without Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidewheel._spark.failures import said, text_of
from tidewheel.errors import ConfigError, FencedError, OperatorError, StateError

LOSSES = 5
"""How many times in a row, with no commit between them, a batch may be lost with its executor."""

_LOST = re.compile(
    r"ExecutorLostFailure|FetchFailed|ExecutorDeadException|Executor heartbeat timed out"
    r"|has failed the maximum allowable number of times"
)


@dataclass(frozen=True)
class Again:
    """Run again after so many seconds; `why` is for the user."""

    seconds: float
    why: str


class Restarts:
    """The failures of a run so far, and what the next one leads to.

    An executor that is lost takes its part of a shuffle with it; the batch then fails as a whole, because a task that is computed
    again could feed two versions of itself to its readers. That is no fault of the program: the batch runs again from its base,
    and the restarts that the user allows are not counted.
    """

    def __init__(self, allowed: int, backoff: float) -> None:
        """Take how many failures the user wants to survive, and the seconds before the first restart, which double."""
        self.allowed, self.backoff = allowed, backoff
        self.failures = self.losses = 0
        self._lost_at: int | None = None
        self._failed: int | None = None

    def after(self, error: Exception, sequence: int, batch: int | None) -> Again | None:
        """Return whether to run again after this error of a batch, with the commit `sequence` the newest; None to give up."""
        if isinstance(error, FencedError | StateError | ConfigError):
            return None
        if lost_executor(error):
            self.losses = self.losses + 1 if self._lost_at == sequence else 1
            self._lost_at = sequence
            if self.losses <= LOSSES:
                why = (
                    f"an executor was lost; batch {batch} runs again from commit {sequence} ({self.losses} of {LOSSES})"
                )
                return Again(self.backoff * 2 ** (self.losses - 1), why)
        repeated = isinstance(error, OperatorError) and self._failed == batch is not None
        self._failed = batch
        self.failures += 1
        if self.failures > self.allowed or repeated:
            return None
        seconds = self.backoff * 2 ** min(self.failures - 1, 6)
        counted = f"restart {self.failures} of {self.allowed}, in {seconds:g} s, from commit {sequence}"
        return Again(seconds, f"{said(error)}; {counted}")


def lost_executor(error: Exception) -> bool:
    """Tell whether Spark gave up a batch because an executor went away.

    >>> lost_executor(Exception("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"))
    True
    """
    return not isinstance(error, OperatorError) and _LOST.search(text_of(error)) is not None
