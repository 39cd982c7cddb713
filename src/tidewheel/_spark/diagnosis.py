"""What a failure of a run means, in one line for the user."""

from __future__ import annotations

from tidewheel._spark import jvm
from tidewheel._spark.failures import disk_full, said, text_of, worker_crashed, worker_late
from tidewheel._spark.hosts import explained
from tidewheel._spark.worker_deaths import last_death
from tidewheel.errors import TidewheelError


def cause(error: Exception) -> str | None:
    """Return what happened to the machinery that a batch runs on, if that made it fail; None for all other errors."""
    if isinstance(error, TidewheelError):
        return None
    if worker_crashed(error):
        return last_death()
    if worker_late(error):
        return (
            "a Python worker did not start within the ten seconds that Spark gives it: its host has too much else to do"
        )
    if disk_full(error):
        return f"a disk is full: {said(error)}. Make room; nothing committed is lost"
    return jvm.ended(error)


def readable(error: Exception, what: str) -> Exception:
    """Return an error that a user can read: ours as it is, Spark's by the one line that says what happened to `what`."""
    if isinstance(error, TidewheelError):
        return error
    lacking = explained(text_of(error))
    return lacking or TidewheelError(f"{what} failed: {cause(error) or said(error)}")
