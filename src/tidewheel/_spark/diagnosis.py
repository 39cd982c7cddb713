"""Explain a failure of a run in one line for the user."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidewheel._spark import jvm
from tidewheel._spark.failures import disk_full, summary_line, text_of, worker_crashed, worker_start_timed_out
from tidewheel._spark.hosts import explained
from tidewheel._spark.worker_deaths import last_death
from tidewheel.errors import TidewheelError

SPARK_ERRORS = (Py4JError, PySparkException)
"""The errors that calls of Spark raise."""


def cause(error: Exception) -> str | None:
    """Return the cause of a failure that is outside of the program, such as a dead worker; None for all other errors."""
    if isinstance(error, TidewheelError):
        return None
    if worker_crashed(error):
        return last_death()
    if worker_start_timed_out(error):
        return (
            "a Python worker did not start within the ten seconds that Spark gives it: its host has too much else to do"
        )
    if disk_full(error):
        return f"a disk is full: {summary_line(error)}. Make room; nothing committed is lost"
    return jvm.ended(error)


def readable(error: Exception, what: str) -> Exception:
    """Return an error that a user can read: our own unchanged, Spark's as one line about `what`."""
    if isinstance(error, TidewheelError):
        return error
    lacking = explained(text_of(error))
    return lacking or TidewheelError(f"{what} failed: {cause(error) or summary_line(error)}")
