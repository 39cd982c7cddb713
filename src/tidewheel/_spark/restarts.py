"""Decide after a failure whether to run again from the last commit, or to give up. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel._engine.commit import MixedAttempts
from tidewheel._spark.failures import lost_executor, summary_line, worker_start_timed_out
from tidewheel.errors import ConfigError, FencedError, StateError, StepError

LOSSES = 5
"""How many times in a row, without a commit, a batch may fail because an executor was lost or a worker did not start."""

_LONGEST_DOUBLING = 6


@dataclass(frozen=True)
class Again:
    """Run again after so many seconds; `why` is for the user."""

    seconds: float
    why: str


class Restarts:
    """The failures of a run since its last commit, and the reaction to the next failure.

    Only consecutive failures count: a commit resets the count and the wait. A job that runs for a year may fail every day.

    An executor that is lost takes its part of a shuffle with it. Spark may then give up the batch, or run some of its tasks
    again and mix the output of two attempts. The program is not at fault: the batch runs again from its base, and this does not
    count as one of the restarts that the user allows. The same holds if a host was too busy to start a Python worker in time.
    """

    def __init__(self, allowed: int, backoff: float) -> None:
        """Take how many failures in a row the user wants to survive, and the seconds before the first restart, which double."""
        self.allowed, self.backoff = allowed, backoff
        self.failures = self.losses = 0
        self._sequence: int | None = None
        self._program_error: int | None = None

    def after(self, error: Exception, sequence: int, batch: int | None, why: str | None = None) -> Again | None:
        """Return whether to run again after this error of a batch; None to give up.

        `sequence` is that of the newest commit. `why` says what happened where the error itself does not.
        """
        if isinstance(error, FencedError | StateError | ConfigError):
            return None
        if sequence != self._sequence:
            self._sequence, self.failures, self.losses, self._program_error = sequence, 0, 0, None
        of_program = isinstance(error, StepError)
        lost = None if of_program else _lost(error)
        if lost is not None and self.losses < LOSSES:
            self.losses += 1
            what = "the run begins" if batch is None else f"batch {batch} runs"
            again = f"{what} again from commit {sequence} ({self.losses} of {LOSSES})"
            return Again(self._wait(self.losses), f"{lost}; {again}")
        if of_program and self._program_error == batch is not None:
            return None
        if of_program:
            self._program_error = batch
        self.failures += 1
        if self.failures > self.allowed:
            return None
        seconds = self._wait(self.failures)
        counted = f"restart {self.failures} of {self.allowed}, in {seconds:g} s, from commit {sequence}"
        return Again(seconds, f"{why or summary_line(error)}; {counted}")

    def _wait(self, number: int) -> float:
        return float(self.backoff * 2 ** min(number - 1, _LONGEST_DOUBLING))


def _lost(error: Exception) -> str | None:
    """Return why a batch failed without a fault of the program; None for all other failures."""
    if isinstance(error, MixedAttempts):
        return str(error)
    if lost_executor(error):
        return "an executor, or its part of a shuffle, was lost"
    return "a Python worker did not start in time" if worker_start_timed_out(error) else None
