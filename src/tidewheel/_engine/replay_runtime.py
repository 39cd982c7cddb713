"""Runs a committed batch again. Its writes go to a scratch place, which is deleted afterwards."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator

from tidewheel._engine.local_tasks import LocalTasks
from tidewheel._engine.plan import Plan
from tidewheel._engine.task_runner import TaskRunner
from tidewheel._engine.task_tables import forget_tables
from tidewheel._state.local_copies import temporary_copies
from tidewheel._storage import Store
from tidewheel._storage.scratch import scratch_over

Place = tuple[str, str]
"""The URL of a scratch store over a job's store, and the folder for local copies."""


class Runtime(ABC):
    """Runs the tasks of batches that run again."""

    @abstractmethod
    def place(self, store: Store, job: str) -> contextlib.AbstractContextManager[Place]:
        """Provide a scratch place for one run of a batch."""

    @abstractmethod
    def tasks(self, plan: Plan) -> TaskRunner:
        """Return a runner of the plan's tasks."""


class LocalRuntime(Runtime):
    """Runs tasks one by one in this process."""

    @contextlib.contextmanager
    def place(self, store: Store, job: str) -> Iterator[Place]:
        with scratch_over(store.url) as url, temporary_copies("replay") as local:
            try:
                yield url, local
            finally:
                forget_tables(url)

    def tasks(self, plan: Plan) -> TaskRunner:
        return LocalTasks(plan)
