"""Runs the same program on the in-memory runtime and on Spark."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidewheel import Job, RunOptions
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


class Runner:
    """Gives a job its source, runs it to its end, and lets a test look at what it left behind."""

    def __init__(self, kind: str, folder: Path, session: Callable[[], Any]) -> None:
        self.kind, self.folder, self._session = kind, folder, session
        self._inputs: dict[str, tuple[Sequence[Any], int]] = {}

    def job(self, name: str | None = None, **settings: Any) -> Job:
        return Job(name or f"job-{secrets.token_hex(3)}", state=f"file://{self.folder}/state", **settings)

    def source(self, job: Job, name: str, items: Sequence[Any], *, batch: int | None = None, **options: Any) -> Any:
        """Add a source that gives the items in order, `batch` of them in each batch."""
        self._inputs[name] = (items, batch or max(len(items), 1))
        return job.source(name, iterable(items, batch_size=batch or max(len(items), 1)), **options)

    def run(self, job: Job, *, parallelism: int = 2, **options: Any) -> None:
        if self.kind == "spark":
            job.run(
                until="end",
                parallelism=parallelism,
                options=RunOptions(spark=self._session(), local=f"{self.folder}/local", **options),
            )
            return
        with MemoryRun(job, parallelism=parallelism) as run:
            batches = max(-(-len(items) // size) for items, size in self._inputs.values())
            for number in range(batches):
                run.batch(
                    {name: items[number * size : (number + 1) * size] for name, (items, size) in self._inputs.items()}
                )
            run.flush()


@pytest.fixture(params=["memory", "spark"])
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    return Runner(request.param, tmp_path, lambda: request.getfixturevalue("spark"))


@pytest.fixture
def memory_runner(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    return Runner("memory", tmp_path, lambda: request.getfixturevalue("spark"))


@pytest.fixture
def runner_spark(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    return Runner("spark", tmp_path, lambda: request.getfixturevalue("spark"))
