"""Run the tasks of a committed batch again on Spark."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from tidewheel._checkpoint.names import folder
from tidewheel._engine.plan import Plan
from tidewheel._engine.replay_runtime import Place, Runtime
from tidewheel._engine.task_runner import TaskRunner
from tidewheel._spark.cluster import default_parallelism, master_of
from tidewheel._spark.diagnosis import SPARK_ERRORS, readable
from tidewheel._spark.hosts import check_hosts
from tidewheel._spark.masters import check_reachable, is_local
from tidewheel._spark.options import RunOptions
from tidewheel._spark.program import Program
from tidewheel._spark.session import session
from tidewheel._spark.shipping import ship
from tidewheel._storage import Store
from tidewheel._storage.scratch import scratch_over


class SparkRuntime(Runtime):
    """Runs tasks on Spark, with the number of tasks that the committed batch had."""

    def __init__(self, options: RunOptions) -> None:
        """Take the run options that say which Spark it is; the others have no effect."""
        self._options = options
        self._session: SparkSession | None = None

    @contextlib.contextmanager
    def place(self, store: Store, job: str) -> Iterator[Place]:
        spark = self._spark
        check_reachable(job, store.url, master_of(spark), self._options.shared_state)
        name = f"replay-{secrets.token_hex(8)}"
        try:
            if is_local(master_of(spark)):
                with (
                    tempfile.TemporaryDirectory(prefix="tidewheel-replay-") as here,
                    scratch_over(store.url, f"file://{here}/written") as url,
                ):
                    yield url, f"{here}/local"
                return
            local = f"{tempfile.gettempdir()}/tidewheel-{name}"
            with scratch_over(store.url, store.at(folder(f"{job}/{name}")).url) as url:
                try:
                    yield url, local
                finally:
                    _remove_everywhere(spark, local)
        except SPARK_ERRORS as error:
            raise readable(error, f"the replay of job {job!r}") from error

    def tasks(self, plan: Plan) -> TaskRunner:
        ship(self._spark, plan)
        check_hosts(self._spark, plan)
        return Program(plan, self._spark, {})

    @property
    def _spark(self) -> SparkSession:
        if self._session is None:
            self._session = self._options.spark or session(self._options.master, self._options.conf)
        return self._session


def _remove_everywhere(spark: SparkSession, path: str) -> None:
    """Delete a folder on all hosts, as far as some tasks reach them."""

    def remove(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shutil.rmtree(path, ignore_errors=True)
        yield from batches

    tasks = 2 * default_parallelism(spark)
    spark.range(0, tasks, 1, tasks).mapInArrow(remove, "id long").collect()
