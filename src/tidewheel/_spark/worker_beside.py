"""A process beside the driver that runs small batches: a task of Spark takes longer to start than such a batch to run.

It is what a Python worker of a local Spark is, a process of the same machine that runs the same step: a function that
crashes in it, or eats all memory, ends it and not the run. The batch then has the attempts of a task of Spark left.

    python -m tidewheel._spark.worker_beside DESCRIPTOR
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from tidewheel._core import pickling
from tidewheel._core.closing import Closing
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.task import SourceSplit
from tidewheel._spark.interrupts import ENDING

_AFTER = 2
"""How many small batches a run has before a process is worth its start."""
_FAILURES = 3
"""How many batches in a row it may fail to bring to an end, until all are left to tasks."""
_PATIENCE_S = 5.0


class BatchFailed(Exception):
    """A batch did not run to its end; the text says why."""


class WorkerBeside(Closing):
    """Starts the process when a run has had some small batches, and anew after it has ended."""

    def __init__(self, program: bytes, digest: str, environment: Mapping[str, str]) -> None:
        """Take the program, which the process gets once, and the environment of tasks; nothing is started yet."""
        self._program, self._digest, self._environment = program, digest, environment
        self._batches = self._failures = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection
        self._is_ready = False

    def is_ready(self) -> bool:
        """Tell whether it can run the batch that is at hand; count it, and start the process if it is time."""
        self._batches += 1
        if self._failures == _FAILURES:
            return False
        if self._process is None:
            if self._batches > _AFTER:
                self._start()
            return False
        try:
            # Its first message says that it has imported what it needs.
            if not self._is_ready and self._connection.poll():
                self._connection.recv_bytes()
                self._connection.send_bytes(pickling.dumps((self._program, self._digest)))
                self._is_ready = True
        except (EOFError, OSError):
            self.close()
        return self._is_ready

    def reports(self, spec: BatchSpec, levels: range, splits: Sequence[SourceSplit]) -> list[bytes]:
        """Run a batch and return its reports; raise `BatchFailed` if it, or the process, does not come to the end."""
        self._failures += 1
        try:
            self._connection.send_bytes(pickling.dumps((spec, levels, splits)))
            answer: list[bytes] | str = pickling.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            self.close()
            raise BatchFailed("the process beside the driver has ended") from error
        if isinstance(answer, str):
            raise BatchFailed(answer)
        self._failures = 0
        return answer

    def kill(self) -> None:
        """End the process in the middle of whatever it does. From any thread."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._connection.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process, self._is_ready, self._batches = None, False, 0

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            # What functions print goes where Spark's workers print.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(theirs.fileno(),), env=dict(self._environment)
            )


def _serve(connection: Connection) -> None:
    """Run batches until the driver has closed its end."""
    from tidewheel._spark.entry import reports_here

    connection.send_bytes(b"")
    program, digest = pickling.loads(connection.recv_bytes())
    while True:
        spec, levels, splits = pickling.loads(connection.recv_bytes())
        answer: list[bytes] | str
        try:
            answer = reports_here(program, digest, spec, levels, splits)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        connection.send_bytes(pickling.dumps(answer))


if __name__ == "__main__":
    # They are for the driver, which lets the batch finish.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(EOFError, ConnectionError), Connection(int(sys.argv[1])) as driver:
        _serve(driver)
