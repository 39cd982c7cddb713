"""Run a batch in another process of this machine, in which sets of texts have another order.

Python orders the items of a set by hashes, which for texts differ between processes. So a function whose results depend on
the order of a set gives the same in two runs of one process, and something else in another.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tidewheel._core import pickling
from tidewheel._engine.local_tasks import LocalTasks
from tidewheel._engine.plan import Plan
from tidewheel._engine.replay_runtime import Place, Runtime
from tidewheel._engine.task_layout import Layout
from tidewheel._engine.task_runner import TaskRunner
from tidewheel._replay.causes import Emitted
from tidewheel._storage import Store
from tidewheel._storage.scratch import scratch_over
from tidewheel.errors import TidewheelError

_SEED = "PYTHONHASHSEED"


class OtherProcess(Runtime):
    """Runs tasks one by one in a process with another order of sets."""

    def __init__(self, emitted: Emitted | None = None) -> None:
        """Take the object that collects the steps' output, if it is to be observed."""
        self._emitted = emitted

    @contextlib.contextmanager
    def place(self, store: Store, job: str) -> Iterator[Place]:
        with (
            tempfile.TemporaryDirectory(prefix="tidewheel-replay-") as here,
            scratch_over(store.url, f"file://{here}/written") as url,
        ):
            yield url, f"{here}/local"

    def tasks(self, plan: Plan) -> TaskRunner:
        return _Tasks(plan, self._emitted)


class _Tasks(TaskRunner):
    def __init__(self, plan: Plan, emitted: Emitted | None) -> None:
        self._plan, self._emitted = plan, emitted

    def run(self, layout: Layout) -> list[bytes]:
        from tidewheel._spark.program import pickled

        with tempfile.TemporaryDirectory(prefix="tidewheel-replay-") as folder:
            given, answer = Path(folder, "given"), Path(folder, "answer")
            given.write_bytes(pickling.dumps((pickled(self._plan), layout, self._emitted)))
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                _SEED: "2" if os.environ.get(_SEED) == "1" else "1",
            }
            ended = subprocess.run(
                [sys.executable, "-m", __name__, str(given), str(answer)],
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if ended.returncode != 0:
                raise TidewheelError(
                    f"the batch does not run in another process, which ended with status {ended.returncode}: "
                    f"{ended.stderr.strip()[-1000:]}"
                )
            reports: list[bytes]
            reports, emitted = pickle.loads(answer.read_bytes())
        if self._emitted is not None:
            self._emitted.take(emitted)
        return reports


def _main(given: str, answer: str) -> None:
    program, layout, emitted = pickle.loads(Path(given).read_bytes())
    make_step = None if emitted is None else emitted.make_step
    reports = LocalTasks(pickle.loads(program), make_step).run(layout)
    Path(answer).write_bytes(pickle.dumps((reports, emitted)))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2])
