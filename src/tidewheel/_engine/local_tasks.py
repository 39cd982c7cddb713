"""Run the tasks of a batch one by one in this process, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pyarrow as pa

from tidewheel._cells.live import unpinned_after
from tidewheel._engine import wire
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan
from tidewheel._engine.task import SourceSplit, TaskIdentity, TaskStep, run_level
from tidewheel._engine.task_layout import Layout
from tidewheel._engine.task_runner import TaskRunner

MakeStep = Callable[[Plan, BatchSpec, int, TaskIdentity], TaskStep]
"""Makes the task of a level."""

_TaskInput = tuple[Sequence[pa.RecordBatch], Sequence[SourceSplit]]
"""The wire rows that a task receives, and the splits that it reads."""


class LocalTasks(TaskRunner):
    """Run tasks one by one in this process. A shuffle sorts wire rows."""

    def __init__(self, plan: Plan, make_step: MakeStep | None = None) -> None:
        """Take the program. `make_step` makes tasks that observe their messages."""
        self._plan, self._make_step, self._attempts = plan, make_step, count()

    def run(self, layout: Layout) -> list[bytes]:
        rows: list[pa.RecordBatch] = []
        with unpinned_after():
            for level in layout.levels:
                if level == layout.levels[0]:
                    inputs: list[_TaskInput] = [((), splits) for splits in layout.splits]
                else:
                    inputs = [(batches, ()) for batches in _shuffled(rows, layout.spec.parallelism)]
                rows = [
                    row
                    for partition, (batches, splits) in enumerate(inputs)
                    for row in run_level(
                        self._plan,
                        layout.spec,
                        level,
                        TaskIdentity(partition, next(self._attempts)),
                        iter(batches),
                        splits,
                        make_step=self._make_step,
                    )
                ]
        return wire.reports_in(rows)


def _shuffled(batches: Sequence[pa.RecordBatch], parallelism: int) -> list[list[pa.RecordBatch]]:
    """Return the wire rows for each task, in their order."""
    targets: list[list[wire.Row[bytes]]] = [[] for _ in range(parallelism)]
    for row in sorted(wire.unpacked(batches), key=lambda row: row.order):
        targets[row.target].append(row._replace(payload=row.payload.to_pybytes()))
    return [[wire.record_batch(rows)] if rows else [] for rows in targets]
