"""Worker processes next to the driver, which run the batches of a local Spark that need no shuffle.

Spark needs about 50 ms to start a task. The processes run the same step as the Python workers of Spark, on the same
machine. A function that crashes, or uses up all memory, ends its worker and not the run; the batch then runs in tasks
of Spark.

    python -m tidewheel._spark.worker_pool DESCRIPTOR
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from tidewheel._core import pickling
from tidewheel._core.logs import logger
from tidewheel._core.own_code import own_code
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.task import SourceSplit
from tidewheel._engine.task_layout import DEFAULT_LIMITS, WORKER_PROCESSES, Layout, TaskLimits
from tidewheel._engine.task_runner import TaskRunner
from tidewheel._spark.interrupts import ENDING

_LOG = logger(__name__)

_FAILURES = 3
"""After so many failures in a row to start, or to finish a batch, all batches run in tasks of Spark."""
_PATIENCE_S = 5.0
_LOOK_S = 1.0


class BatchFailed(Exception):
    """A batch did not run to its end; the text says why."""


class WorkerPool(TaskRunner):
    """Runs tasks in processes. It starts a process when a batch needs it, after the first batches of a run."""

    place = WORKER_PROCESSES

    def __init__(
        self,
        program: bytes,
        digest: str,
        environment: Mapping[str, str],
        most: int,
        limits: TaskLimits = DEFAULT_LIMITS,
    ) -> None:
        """Take the program, which each process gets once, the environment of tasks, and how many processes there may be.

        Nothing is started yet.
        """
        self._hello = pickling.dumps((program, digest, own_code()))
        self._environment, self._most, self._limits = environment, most, limits
        self._batches = self._failures = 0
        self._workers: list[_Worker] = []

    def count_batch(self) -> None:
        """Take note that the run has one more batch."""
        self._batches += 1

    def accepts(self, layout: Layout) -> bool:
        """Return whether the processes can run these tasks at a time; start missing processes if it is time."""
        tasks = len(layout.splits)
        if layout.shuffles or self._failures >= _FAILURES or tasks > self._most:
            return False
        if self._batches > self._limits.pool_after:
            self._start(tasks - len(self._workers))
        ready = [worker.is_ready() for worker in self._workers[:tasks]]
        if ended := self._forget_ended():
            self._failed(f"a process ended before it had a batch, with status {ended[0].process.returncode}")
        return len(ready) == tasks and all(ready)

    def overhead(self, layout: Layout) -> float:
        """Return the estimated overhead of several processes, in seconds."""
        return self._limits.pool_s

    def run(self, layout: Layout) -> list[bytes]:
        """Run the tasks and return their reports; raise `BatchFailed` if a task does not come to its end.

        All tasks have ended by then, so no task runs next to a second attempt of the batch.
        """
        workers = self._workers[: len(layout.splits)]
        try:
            for number, (worker, splits) in enumerate(zip(workers, layout.splits, strict=True)):
                worker.begin(layout.spec, layout.levels, splits, number)
            answers = [worker.answer() for worker in workers]
        except BaseException as error:
            # A pending answer would be mistaken for an answer of the next batch.
            self.close()
            self._failed(f"{type(error).__name__}: {error}")
            raise
        self._forget_ended()
        reports: list[bytes] = []
        for answer in answers:
            if isinstance(answer, str):
                self._failed(answer)
                raise BatchFailed(answer)
            reports += answer
        self._failures = 0
        return reports

    def cancel(self) -> None:
        """End the processes in the middle of a batch. From any thread."""
        for worker in list(self._workers):
            worker.process.kill()

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _start(self, number: int) -> None:
        try:
            for _ in range(number):
                self._workers.append(_Worker(self._environment, self._hello))
        except OSError as error:
            self._batches = 0
            self._failed(f"none can be started: {error}")

    def _failed(self, why: str) -> None:
        """Count a failure; warn if it is the last one."""
        self._failures += 1
        if self._failures == _FAILURES:
            _LOG.warning(
                "the worker processes failed %d times in a row: until the job is started again, all batches run in tasks of "
                "Spark, which takes longer for small batches. The last failure: %s",
                _FAILURES,
                why,
            )

    def _forget_ended(self) -> list[_Worker]:
        """Remove the processes that have ended from the pool, and return them."""
        ended = [worker for worker in self._workers if worker.has_ended]
        if ended:
            self._batches = 0
        self._workers = [worker for worker in self._workers if not worker.has_ended]
        return ended


class _Worker:
    """One of the processes, which runs a task at a time."""

    def __init__(self, environment: Mapping[str, str], hello: bytes) -> None:
        self._connection, theirs = Pipe()
        self._hello = hello
        self._is_ready = self.has_ended = False
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            # Functions print to the same place as in Spark's workers, and also without a buffer.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=(theirs.fileno(),),
                env={**environment, "PYTHONUNBUFFERED": "YES"},
            )

    def is_ready(self) -> bool:
        """Return whether it has sent its first message: it has then imported all modules."""
        try:
            if not self._is_ready and self._connection.poll():
                self._connection.recv_bytes()
                self._connection.send_bytes(self._hello)
                self._is_ready = True
        except (EOFError, OSError):
            self.close()
        return self._is_ready

    def begin(self, spec: BatchSpec, levels: range, splits: Sequence[SourceSplit], number: int) -> None:
        """Have it run a task."""
        with contextlib.suppress(OSError):  # The answer tells.
            self._connection.send_bytes(pickling.dumps((spec, levels, splits, number)))

    def answer(self) -> list[bytes] | str:
        """Wait for the end of the task; return its reports, or why there are none."""
        try:
            # Processes that a function has forked may hold its end of the connection open after it has ended.
            while not self._connection.poll(_LOOK_S):
                if self.process.poll() is not None:
                    raise EOFError
            answer: list[bytes] | str = pickling.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            self.close()
            return "a worker process has ended"
        return answer

    def close(self) -> None:
        """End the process."""
        self._is_ready, self.has_ended = False, True
        self._connection.close()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class _Termination:
    """SIGTERM: an idle process ends at once, a busy one after its task. A second SIGTERM ends it in any case.

    A service manager sends SIGTERM to all processes of a service, and the driver then lets the batch finish.
    """

    def __init__(self) -> None:
        self._is_busy = self._is_asked = False

    def requested(self, *_: object) -> None:
        """Handle the signal."""
        if self._is_asked or not self._is_busy:
            os._exit(128 + signal.SIGTERM)
        self._is_asked = True

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Let a task finish."""
        self._is_busy = True
        yield
        self._is_busy = False
        if self._is_asked:
            os._exit(128 + signal.SIGTERM)


def _serve(connection: Connection, termination: _Termination) -> None:
    """Run tasks until the driver has closed its end."""
    from tidewheel._spark.entry import LevelTasks

    connection.send_bytes(b"")
    program, digest, code = pickling.loads(connection.recv_bytes())
    while True:
        spec, levels, splits, number = pickling.loads(connection.recv_bytes())
        answer: list[bytes] | str
        with termination.put_off():
            try:
                answer = LevelTasks(program, digest, code, spec, levels, [splits]).reports_here(number)
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            connection.send_bytes(pickling.dumps(answer))


def _end_with_driver(descriptor: int) -> None:
    """End this process when the driver is gone, also in the middle of a function that never returns."""
    connection = select.poll()
    connection.register(descriptor, 0)  # For its end, and not for what comes in.
    connection.poll()
    os._exit(0)


if __name__ == "__main__":
    # A terminal sends these to all processes; they are for the driver, which lets the batch finish.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    ending = _Termination()
    signal.signal(signal.SIGTERM, ending.requested)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    threading.Thread(target=_end_with_driver, args=(descriptor,), name="tidewheel-driver", daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError), Connection(descriptor) as driver:
        _serve(driver, ending)
