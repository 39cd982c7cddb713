"""What the JVM writes to stderr, without the one line that every start of Spark makes Java write.

Spark asks for a module that is still incubating, Java warns of it, and neither has an option against that. So the JVM's
stderr is a pipe to a small process that copies it, and that outlives this one as the JVM may. It has a session of its own:
no Ctrl-C ends it before the JVM has said its last. If it ends all the same, a thread here copies the rest.

That process runs this file by its path, so nothing but the standard library is imported.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

WARNING = b"WARNING: Using incubator modules: jdk.incubator.vector\n"

_LOG = logging.getLogger(__name__)
_STDERR = 2
_CHUNK = 1 << 16
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class Filter:
    r"""Takes the line out, the first time that it comes; all else passes as it is. Pure.

    >>> lines = Filter()
    >>> lines.pass_on(b"hello\nWARNING: Using"), lines.pass_on(WARNING[14:] + b"bye")
    (b'hello\n', b'bye')
    """

    def __init__(self) -> None:
        self._waiting = b""
        """The beginning of a line that may become the warning."""
        self._within_line = False
        self._found = False

    def pass_on(self, data: bytes) -> bytes:
        """Return what is to be written now. What may be the beginning of the warning waits for its end."""
        if self._found:
            return data
        lines = _LINE.findall(self._waiting + data)
        self._waiting = b""
        passed: list[bytes] = []
        for place, line in enumerate(lines):
            if not self._within_line and line == WARNING:
                self._found = True
                return b"".join(passed + lines[place + 1 :])
            if not self._within_line and WARNING.startswith(line):
                self._waiting = line
                break
            passed.append(line)
            self._within_line = not line.endswith(b"\n")
        return b"".join(passed)

    def rest(self) -> bytes:
        """Return what waits, at the end."""
        return self._waiting


def copy(source: int, target: int) -> None:
    """Copy from one file descriptor to another, without the line, until the source ends.

    A target that takes no more is no reason to stop reading: the JVM would stand still.
    """
    lines = Filter()
    with contextlib.suppress(OSError):
        while data := os.read(source, _CHUNK):
            _write(target, lines.pass_on(data))
        _write(target, lines.rest())
        return
    while os.read(source, _CHUNK):
        pass


def _write(target: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(target, data) :]
        except BlockingIOError:
            select.select([], [target], [])


@contextlib.contextmanager
def filtered() -> Iterator[int | None]:
    """Give what the JVM that is started in this block has for its stderr; None: this process has none itself."""
    try:
        os.fstat(_STDERR)
    except OSError:
        yield None
        return
    source, target = os.pipe()
    threading.Thread(target=_serve, args=(source,), name="tidewheel-jvm-stderr", daemon=True).start()
    try:
        yield target
    finally:
        os.close(target)


def _serve(source: int) -> None:
    """Have a process copy until the JVM has ended; if that process ends before, copy here."""
    try:
        command = [sys.executable, "-I", "-S", __file__]
        try:
            status = subprocess.Popen(
                command, stdin=source, stdout=subprocess.DEVNULL, cwd="/", start_new_session=True
            ).wait()
        except OSError as error:
            _LOG.warning(
                "no process can be started that copies what the JVM writes to stderr; a thread does it: %s", error
            )
            copy(source, _STDERR)
            return
        if status != 0:
            _LOG.warning(
                "the process that copies what the JVM writes to stderr has ended with status %s, and a line of it may be lost; "
                "a thread goes on with it",
                status,
            )
            copy(source, _STDERR)
    finally:
        os.close(source)


if __name__ == "__main__":
    # Service managers signal all processes that they know, and the JVM has its last to say.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    copy(0, _STDERR)
