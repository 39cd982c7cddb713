"""What an error says that came through the JVM: it arrives as pages of text, and one line of it is for the user."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_WRAPPING = re.compile(r"^\[STREAM_FAILED\] Query \[id = [^]]*\] terminated with exception: ")
_OURS = re.compile(r"^tidewheel\.[\w.]+: ")
_END = re.compile(r"^(=== |\t|at |Caused by: |Driver stacktrace:)|^\s*SQLSTATE: ")
_STATE = re.compile(r" SQLSTATE: \w+")


def said(error: BaseException) -> str:
    """Return what an error says: that of the Python exception inside it, if there is one, else its own first line.

    >>> said(Exception("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: the disk is full SQLSTATE: XX"))
    'the disk is full'
    """
    text = text_of(error).strip()
    if not text:
        return type(error).__name__
    inside = _raised(text)
    return _OURS.sub("", inside) if inside else _STATE.sub("", _WRAPPING.sub("", text.splitlines()[0]))


def text_of(error: BaseException) -> str:
    """Return the whole text of an error. That of one in the JVM is asked for there, and the JVM may have ended."""
    try:
        return str(error)
    except Exception:
        return "Spark's Java process has ended"


def _raised(text: str) -> str:
    """Return what the last Python traceback of a text ends in, as one line; nothing if there is none."""
    _, found, after = text.rpartition(_TRACEBACK)
    lines = iter(after.splitlines() if found else [])
    raised = next((line for line in lines if line and not line.startswith(" ")), "")
    more = []
    for line in lines:
        if not line.strip() or _END.match(line):
            break
        more.append(line.strip())
    return " ".join([raised, *more])
