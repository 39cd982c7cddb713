"""Runs of a job on Spark with other limits than the default."""

from __future__ import annotations

from typing import Any

from tidewheel import Job, RunOptions, RunResult
from tidewheel._engine.task_layout import TaskLimits
from tidewheel._spark.driver import Driver

ALWAYS_DIVIDED = TaskLimits(small_bytes=-1, query_s=0.0, job_s=0.0, pool_s=0.0)
"""Every batch is divided among tasks, however small."""


def run_divided(job: Job, **options: Any) -> RunResult:
    """Run a job whose batches are all divided among tasks."""
    return Driver(job, job.plan(), RunOptions(**options), limits=ALWAYS_DIVIDED).execute()
