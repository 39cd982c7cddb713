"""What an error means that came through the JVM: it arrives as pages of text, and one line of it is for the user."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_WRAPPING = re.compile(r"^\[STREAM_FAILED\] Query \[id = [^]]*\] terminated with exception: ")
_OURS = re.compile(r"^tidewheel\.[\w.]+: ")
_END = re.compile(r"^(=== |\t|at |Caused by: |Driver stacktrace:)|^\s*SQLSTATE: ")
_STATE = re.compile(r" SQLSTATE: \w+")

_LOST = re.compile(
    r"ExecutorLostFailure|FetchFailed|ExecutorDeadException|Executor heartbeat timed out"
    r"|has (failed|been resubmitted for) the maximum allowable number of times"
)
_WORKER_CRASHED = re.compile(r"Python worker (exited unexpectedly|failed to connect back)")
_DISK_FULL = re.compile(r"No space left on device|MDB_MAP_FULL|Disk quota exceeded")


def said(error: BaseException) -> str:
    """Return what an error says: that of the Python exception inside it, if there is one, else its own first line.

    >>> said(Exception("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: the disk is full SQLSTATE: XX"))
    'the disk is full'
    """
    text = text_of(error).strip()
    if not text:
        return type(error).__name__
    raised = _raised(text)
    return _OURS.sub("", raised) if raised else _STATE.sub("", _WRAPPING.sub("", text.splitlines()[0]))


def text_of(error: BaseException) -> str:
    """Return the whole text of an error. That of an error in the JVM is asked for there, and the JVM may have ended."""
    try:
        return str(error)
    except Exception:
        return "Spark's JVM has ended"


def lost_executor(error: BaseException) -> bool:
    """Tell whether Spark gave up a batch because an executor, or its part of a shuffle, went away.

    >>> lost_executor(Exception("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"))
    True
    """
    return _LOST.search(text_of(error)) is not None


def worker_crashed(error: BaseException) -> bool:
    """Tell whether a batch failed because a Python worker ended in the middle of a task."""
    return _WORKER_CRASHED.search(text_of(error)) is not None


def disk_full(error: BaseException) -> bool:
    """Tell whether a batch failed because a disk is full.

    >>> disk_full(OSError(28, "No space left on device"))
    True
    """
    return _DISK_FULL.search(text_of(error)) is not None


def _raised(text: str) -> str:
    """Return what the last Python traceback of a text ends in, as one line; nothing if there is none."""
    _, traceback, after = text.rpartition(_TRACEBACK)
    lines = iter(after.splitlines() if traceback else [])
    raised = next((line for line in lines if line and not line.startswith(" ")), "")
    more = []
    for line in lines:
        if not line.strip() or _END.match(line):
            break
        more.append(line.strip())
    return " ".join([raised, *more])
