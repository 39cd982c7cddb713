"""Read the records of Python workers that a signal ended, which their daemon writes.

Spark only reports "Python worker exited unexpectedly".
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tidewheel._spark.daemon import DEATHS
from tidewheel._spark.process_folder import process_folder

_MEMORY = (
    "the kernel sends SIGKILL when memory runs out. Give the host or the container more memory, or run fewer tasks at once "
    "(--master local[N], --parallelism)"
)


def record_deaths() -> None:
    """Have the workers of a Spark that is about to start on this machine recorded."""
    os.environ.setdefault(DEATHS, str(process_folder("workers") / "deaths"))


def last_death() -> str:
    """Return which worker ended last and how, as far as it is known."""
    try:
        lines = Path(os.environ.get(DEATHS, "")).read_text().splitlines()
    except OSError:
        lines = []
    if not lines:
        return "a Python worker ended in the middle of a task; the log of its executor has more"
    return described(lines[-1])


def described(line: str) -> str:
    """Return a record in words.

    >>> described("4711 11 307200")
    'the Python worker with process id 4711 was ended by SIGSEGV; it had used up to 300 MB of memory'
    """
    process, number, kilobytes = map(int, line.split())
    name = signal.Signals(number).name
    text = f"the Python worker with process id {process} was ended by {name}; it had used up to {kilobytes >> 10} MB of memory"
    return f"{text}; {_MEMORY}" if number == signal.SIGKILL else text
