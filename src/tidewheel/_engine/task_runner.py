"""TaskRunner: where the tasks of a batch run: in tasks of Spark, or in worker processes next to the driver."""

from __future__ import annotations

from abc import abstractmethod

from tidewheel._core.closing import Closing
from tidewheel._engine.task_layout import Layout


class TaskRunner(Closing):
    """Runs the tasks of a batch. What they do is in `_engine/task.py`, the same for every runner."""

    def accepts(self, layout: Layout) -> bool:
        """Return whether this runner can run these tasks now."""
        return True

    def overhead(self, layout: Layout) -> float:
        """Return about how many seconds this runner adds to the work of these tasks."""
        return 0.0

    @abstractmethod
    def run(self, layout: Layout) -> list[bytes]:
        """Run the tasks to their end and return their encoded reports."""

    def cancel(self) -> None:
        """End the tasks in the middle of a batch. From any thread."""

    def close(self) -> None:
        """Release processes and other resources."""
