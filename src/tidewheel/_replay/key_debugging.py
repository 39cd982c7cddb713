"""Run a batch with a debugger that stops in the user's functions at the messages of one key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidewheel._core.user_code import stopping_in_functions
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan
from tidewheel._engine.task import TaskIdentity, TaskStep
from tidewheel._replay.key_trace import is_stepwise
from tidewheel._values import Batch


class KeyDebugging:
    """Makes tasks that stop at each message of a key."""

    def __init__(self, key: Any) -> None:
        """Take the key."""
        self.key = key

    def make_step(self, plan: Plan, spec: BatchSpec, level: int, task: TaskIdentity) -> TaskStep:
        """Return the task of a level."""
        return _DebuggedStep(self, plan, spec, level, task)


class _DebuggedStep(TaskStep):
    def __init__(self, debugging: KeyDebugging, plan: Plan, spec: BatchSpec, level: int, task: TaskIdentity) -> None:
        super().__init__(plan, spec, level, task)
        self.debugging = debugging

    @property
    def repeats(self) -> bool:
        return True

    def deliver(self, targets: Iterable[tuple[int, int]], batch: Batch) -> None:
        if not batch.keyed or self.debugging.key not in batch.keys:
            super().deliver(targets, batch)
            return
        for target in targets:
            for position, key in enumerate(batch.keys):
                self._deliver_one(target, batch.take([position]), stops=key == self.debugging.key)

    def _deliver_one(self, target: tuple[int, int], one: Batch, *, stops: bool) -> None:
        node, process = self.plan.nodes[target[0]], self.processes[target[0]]
        if not stops or not is_stepwise(node.operator):
            super().deliver((target,), one)
            return
        process.on_end_of_data()  # Messages of other keys may wait.
        with stopping_in_functions(f"step {node.name!r}, key {self.debugging.key!r}, message {one.values[0]!r}"):
            super().deliver((target,), one)
            process.on_end_of_data()
