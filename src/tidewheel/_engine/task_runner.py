"""TaskRunner: runs the tasks of a batch in tasks of Spark, in worker processes next to the driver, or in this process."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from tidewheel._core.closing import Closing
from tidewheel._engine.commit import check_reports
from tidewheel._engine.report import Report, decode
from tidewheel._engine.task_layout import Layout


class TaskRunner(Closing):
    """Runs the tasks of a batch. The code of a task is in `_engine/task.py` and is the same for every runner."""

    place: ClassVar[str] = "this process"
    """Where the tasks run, as people read it."""

    def accepts(self, layout: Layout) -> bool:
        """Return whether this runner can run these tasks now."""
        return True

    def overhead(self, layout: Layout) -> float:
        """Return about how many seconds this runner adds to the work of these tasks."""
        return 0.0

    @abstractmethod
    def run(self, layout: Layout) -> list[bytes]:
        """Run the tasks to their end and return their encoded reports."""

    def reports(self, layout: Layout) -> list[Report]:
        """Run the tasks and return their reports. Raise if a task failed, or if the reports do not prove a whole batch."""
        return checked(self.run(layout), layout.tasks)

    def cancel(self) -> None:
        """End the tasks in the middle of a batch. From any thread."""

    def close(self) -> None:
        """Release processes and other resources."""


def checked(payloads: Iterable[bytes], tasks: Mapping[int, int | None]) -> list[Report]:
    """Decode the reports of a batch and check them (`check_reports`)."""
    found = [decode(payload) for payload in payloads]
    check_reports(found, tasks)
    return found
