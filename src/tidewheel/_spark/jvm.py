"""The JVM that Spark runs in: whether it has ended, and how this process forgets it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

CONNECTION_ERRORS = (Py4JNetworkError, ConnectionError, EOFError)
"""The errors of calls to a JVM that has ended."""

_PATIENCE_S = 5.0


def ended(error: BaseException | None = None, ending: bool = False) -> str | None:
    """Return how the JVM ended, in words; None if it runs.

    A connection breaks before the process has exited. So wait briefly for the process after an error that may come from the
    connection, and if the JVM may be `ending`.
    """
    broken = isinstance(error, CONNECTION_ERRORS)
    process = _process()
    if process is None:
        return "Spark's JVM has ended" if broken else None
    try:
        status = process.wait(_PATIENCE_S if broken or ending or _has_no_answer(error) else 0)
    except subprocess.TimeoutExpired:
        return None
    how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    return f"Spark's JVM, process {process.pid}, has ended {how}"


def _has_no_answer(error: BaseException | None) -> bool:
    """Return whether the error has no text of the JVM: Py4J raises such an error if the connection breaks during a call."""
    return type(error) is Py4JError and "Trace:" not in str(error)


def forget() -> None:
    """Forget a JVM that has ended: the next session of this process starts another one."""
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        # There is no JVM left to stop; the rest of `stop` is about this process.
        context._jsc = None
        context.stop()
    if gateway is not None:
        with contextlib.suppress(*CONNECTION_ERRORS, OSError):
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _process() -> subprocess.Popen[Any] | None:
    """Return the process of the JVM, if this process started it; under spark-submit, the JVM started this process."""
    gateway = SparkContext._gateway
    # Not `gateway.proc`: the gateway asks the JVM for attributes that it lacks.
    return None if gateway is None else vars(gateway).get("proc")
