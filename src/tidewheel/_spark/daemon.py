"""The process that Spark forks its Python workers from, with everything that a task imports already there.

Without it every worker spends a second or more on imports, at its first task and whenever it was idle for a minute.
Spark starts it as `python -m tidewheel._spark.daemon` (`spark.python.daemon.module`), and on other hosts, where the file comes in
the archive of `shipping.py`, as `python -m tidewheel_daemon`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import Any

DEATHS = "TIDEWHEEL_WORKER_DEATHS"
"""The environment variable with the file that gets a line for each worker that a signal ended: process, signal, kilobytes."""


def preload() -> None:
    """Import the modules that tasks need. Ignore missing packages: the task that needs one reports it."""
    with contextlib.suppress(ImportError):
        import pandas  # noqa: F401  pyspark's mapInArrow imports it
        import pyarrow.compute
        import pyarrow.parquet  # noqa: F401
        import pyspark.sql.pandas.serializers
        import pyspark.worker  # noqa: F401


def watch_workers() -> None:
    """Record workers that a signal ends. Spark's own daemon ignores the exit status of its workers."""
    install = signal.signal

    def chosen(number: int, handler: Any) -> Any:
        watched = number == signal.SIGCHLD and handler is signal.SIG_IGN
        return install(number, _on_end if watched else handler)

    signal.signal = chosen  # type: ignore[assignment]  # the same for all that Spark's daemon asks of it


def _on_end(*_: object) -> None:
    """Record the workers that have ended: one signal may announce several."""
    while True:
        try:
            process, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if process == 0:
            return
        if os.WIFSIGNALED(status):
            _record(process, os.WTERMSIG(status), usage.ru_maxrss)


def _record(process: int, number: int, kilobytes: int) -> None:
    file = os.environ.get(DEATHS)
    if file is None:
        # On another host: into the log of the executor.
        print(f"Python worker {process} was ended by signal {number}; memory {kilobytes >> 10} MB", file=sys.stderr)
        return
    with contextlib.suppress(OSError), open(file, "a", encoding="ascii") as deaths:
        deaths.write(f"{process} {number} {kilobytes}\n")


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    watch_workers()
    # These objects stay forever: the workers' garbage collections skip them, and so do not copy their pages.
    gc.freeze()
    manager()
