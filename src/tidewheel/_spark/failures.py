"""Find the line for the user in an error of the JVM, which is pages of text."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_WRAPPING = re.compile(r"^\[STREAM_FAILED\] Query \[id = [^]]*\] terminated with exception: ")
_CALLING = re.compile(r"^An error occurred while calling [^\n]*\n:? ?")
_CAUSE = re.compile(r"^\s*Caused by: (.*)$", re.M)
_THROWN = re.compile(r"^(?P<package>(?:[a-z]\w*\.)+)(?P<kind>[A-Z][\w$]*)(?:: (?P<text>.+))?$")
_SPEAK_FOR_THEMSELVES = re.compile(
    r"^(Runtime|IO|FileNotFound|IllegalState|IllegalArgument|Execution|Spark\w*|Analysis|Parse)?Exception$"
)
"""Java exceptions whose text is clear without the name of the class."""
_READ_FILE = re.compile(r"\[FAILED_READ_FILE[^]]*\] Encountered error while reading file (\S+?)\.? ")
_OURS = re.compile(r"^tidewheel\.[\w.]+: ")
_END = re.compile(r"^(=== |\t|at |Caused by: |Driver stacktrace:)|^\s*SQLSTATE: ")
_STATE = re.compile(r" SQLSTATE: \w+")

_ADVICE = {
    "CSV header does not conform to the schema": "The first line of the file must name the columns of the source's schema, in "
    "their order: correct the line, or the schema, or give header=False if it is a record"
}
"""Advice for errors of Spark that have none, by the beginning of their text."""
_AT_THE_START = {
    # What a session says when it has given up to register with a standalone master.
    "Cannot call methods on a stopped SparkContext": "no master has answered there; start it, or name another one (--master)",
    "JAVA_GATEWAY_EXITED": "its JVM has ended at once; the lines above say why",
}
"""Reasons for a start that fails, by a part of the error's text."""
_LOST = re.compile(
    r"ExecutorLostFailure|FetchFailed|ExecutorDeadException|Executor heartbeat timed out"
    r"|has (failed|been resubmitted for) the maximum allowable number of times"
    r"|A shuffle map stage with indeterminate output was failed and retried"
)
_WORKER_CRASHED = re.compile(r"Python worker exited unexpectedly")
_WORKER_LATE = re.compile(r"Python worker failed to connect back")
_DISK_FULL = re.compile(r"No space left on device|MDB_MAP_FULL|Disk quota exceeded")


def summary_line(error: BaseException) -> str:
    """Return an error in one line: the Python exception inside it, or the deepest cause in the JVM, or the error itself.

    >>> summary_line(Exception("[STREAM_FAILED] Query [id = 1] terminated with exception: the disk is full SQLSTATE: XX"))
    'the disk is full'
    """
    text = text_of(error).strip()
    if not text:
        return type(error).__name__
    raised = _raised(text)
    return _OURS.sub("", raised) if raised else _deepest(text) or _first_line(text)


def start_failure(error: BaseException) -> str:
    """Return why Spark did not start, in one line.

    >>> start_failure(Exception("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."))
    'its JVM has ended at once; the lines above say why'
    """
    text = text_of(error)
    return next((why for sign, why in _AT_THE_START.items() if sign in text), None) or summary_line(error)


def text_of(error: BaseException) -> str:
    """Return the whole text of an error and of its causes in the JVM, unless the JVM has ended."""
    try:
        text, causes = str(error), getattr(error, "_stackTrace", None)
        return f"{text}\n\n{causes}" if isinstance(causes, str) and causes not in text else text
    except Exception:
        return "Spark's JVM has ended"


def lost_executor(error: BaseException) -> bool:
    """Return whether Spark gave up a batch because an executor, or its part of a shuffle, went away.

    >>> lost_executor(Exception("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"))
    True
    """
    return _LOST.search(text_of(error)) is not None


def worker_crashed(error: BaseException) -> bool:
    """Return whether a batch failed because a Python worker ended in the middle of a task."""
    return _WORKER_CRASHED.search(text_of(error)) is not None


def worker_start_timed_out(error: BaseException) -> bool:
    """Return whether a batch failed because a Python worker was not there in the ten seconds that Spark gives it to start."""
    return _WORKER_LATE.search(text_of(error)) is not None


def disk_full(error: BaseException) -> bool:
    """Return whether a batch failed because a disk is full.

    >>> disk_full(OSError(28, "No space left on device"))
    True
    """
    return _DISK_FULL.search(text_of(error)) is not None


def _first_line(text: str) -> str:
    """Return the first line without the prefixes of Spark and Py4J."""
    line = _WRAPPING.sub("", _CALLING.sub("", text)).splitlines()[0]
    return _STATE.sub("", _in_own_words(line))


def _deepest(text: str) -> str:
    """Return the last cause of a Java stack trace, with the file that was read if there was one; empty without causes."""
    causes = [line.strip() for line in _CAUSE.findall(text)]
    if not causes:
        return ""
    cause = _STATE.sub("", _in_own_words(causes[-1]))
    cause += next((f" {advice}" for begin, advice in _ADVICE.items() if cause.startswith(begin)), "")
    file = _READ_FILE.search(text)
    name = file and file.group(1).rpartition("/")[2]
    return f"{file.group(1)}: {cause}" if file and name and name not in cause else cause


def _in_own_words(thrown: str) -> str:
    """Return the text of a Java exception, without its package, and without its name where the text says all."""
    match = _THROWN.match(thrown)
    if match is None:
        return thrown
    kind, text = match["kind"], match["text"]
    return kind if text is None else text if _SPEAK_FOR_THEMSELVES.match(kind) else f"{kind}: {text}"


def _raised(text: str) -> str:
    """Return the exception of the last Python traceback in a text, as one line; empty if there is none."""
    _, traceback, after = text.rpartition(_TRACEBACK)
    lines = iter(after.splitlines() if traceback else [])
    raised = next((line for line in lines if line and not line.startswith(" ")), "")
    more = []
    for line in lines:
        if not line.strip() or _END.match(line):
            break
        more.append(line.strip())
    return " ".join([raised, *more])
