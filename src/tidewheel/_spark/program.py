"""The program as bytes that travel to the tasks, and the batch as one Spark query."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark import RDD, SparkContext, SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidewheel._core import pickling
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan, source_key
from tidewheel._engine.task import SourceSplit
from tidewheel._engine.wire import ORDER, REPORT, SPARK_SCHEMA
from tidewheel._spark.cluster import is_connect, name_jobs
from tidewheel._spark.entry import levels_function, reports_function, reports_here
from tidewheel._spark.modules import direct
from tidewheel._spark.partitioning import partitioned
from tidewheel._spark.workers_beside import WorkersBeside
from tidewheel.errors import ConfigError


class Program:
    """A plan, pickled once, and how a batch of it becomes one Spark query with one action."""

    def __init__(self, plan: Plan, session: SparkSession, schemas: Mapping[str, pa.Schema]) -> None:
        """Take the plan, the session that runs its tasks, and the columns of each source."""
        self.plan = plan
        self._session = session
        self._partitions: dict[int, RDD[None]] = {}
        """What plain jobs run on, by the number of their tasks, each made once."""
        self._bytes = _pickled(plan)
        self._digest = hashlib.sha256(self._bytes).hexdigest()
        columns = next(iter(schemas.values())) if len(schemas) == 1 else None
        self.shared_key = None if columns is None else source_key(plan, _spark_types(columns))
        """The column by which a task that reads a whole batch finds its own records."""

    def frames_query(
        self, spec: BatchSpec, frames: Mapping[int, DataFrame], hands: Sequence[Sequence[SourceSplit]]
    ) -> DataFrame:
        """Return the query of a batch with rows that Spark has read, by the number of their source, and splits beside them."""
        name_jobs(self._session, job_name(spec, range(len(self.plan.levels))))
        parts = []
        if hands:
            # First: a task finds its splits by the number of its partition.
            rows = self._session.range(0, len(hands), 1, len(hands))
            parts.append(
                rows.mapInArrow(levels_function(self._bytes, self._digest, spec, range(1), hands), SPARK_SCHEMA)
            )
        for number, frame in frames.items():
            level = levels_function(self._bytes, self._digest, spec, range(1), source=number)
            parts.append(frame.mapInArrow(level, SPARK_SCHEMA))
        return self.tail(reduce(DataFrame.union, parts), spec)

    def direct_query(self, spec: BatchSpec, levels: range, hands: Sequence[Sequence[SourceSplit]]) -> DataFrame:
        """Return the query of these levels of a batch whose tasks read its splits themselves: a partition for each hand."""
        name_jobs(self._session, job_name(spec, levels))
        rows = self._session.range(0, len(hands), 1, len(hands))
        first = levels_function(self._bytes, self._digest, spec, levels[:1], hands)
        return self.tail(rows.mapInArrow(first, SPARK_SCHEMA), spec, levels[0] + 1)

    def in_tasks(self, spec: BatchSpec, levels: range, hands: Sequence[Sequence[SourceSplit]]) -> list[bytes]:
        """Run levels without a shuffle between them, a task for each hand, and return the reports.

        On a classic session it is a plain Spark job, not a query: planning a query takes longer than a small batch.
        """
        if is_connect(self._session):
            function = levels_function(self._bytes, self._digest, spec, levels, hands)
            rows = self._session.range(0, len(hands), 1, len(hands)).mapInArrow(function, SPARK_SCHEMA)
            return [bytes(row.payload) for row in rows.collect() if row.edge == REPORT]
        name_jobs(self._session, job_name(spec, levels))
        context = self._session.sparkContext
        if len(hands) not in self._partitions:
            self._partitions[len(hands)] = context.parallelize([None] * len(hands), len(hands))
        task = reports_function(self._bytes, self._digest, spec, levels, hands)
        reports: list[bytes] = context.runJob(self._partitions[len(hands)], task)
        return reports

    def in_this_process(self, splits: Sequence[SourceSplit], spec: BatchSpec) -> list[bytes]:
        """Run a small batch here, with a copy of the program as a task has it; return its reports."""
        return reports_here(self._bytes, self._digest, spec, range(len(self.plan.levels)), splits)

    def beside(self) -> WorkersBeside:
        """Return what runs batches in processes beside this one, once there were some, as many as a local Spark has tasks."""
        context = self._session.sparkContext
        most = min(context.defaultParallelism, os.cpu_count() or 1)
        return WorkersBeside(self._bytes, self._digest, _task_environment(context), most)

    def tail(self, rows: DataFrame, spec: BatchSpec, first: int = 1) -> DataFrame:
        """Return the levels from `first` on, fed with wire rows. A task gets its rows in the order of their sources."""
        for level in range(first, len(self.plan.levels)):
            shuffled = partitioned(rows, spec.parallelism, F.col("target")).sortWithinPartitions(*ORDER)
            rows = shuffled.mapInArrow(self._level(spec, level), SPARK_SCHEMA)
        return rows

    def _level(self, spec: BatchSpec, level: int) -> Any:
        return levels_function(self._bytes, self._digest, spec, range(level, level + 1))


def job_name(spec: BatchSpec, levels: range) -> str:
    """Return the name of a batch's jobs in Spark's UI.

    >>> job_name(BatchSpec("orders", "", "", 6, 0, 7, "", 64, 2, 0), range(0, 2))
    'tidewheel: orders, batch for commit 7, levels 0 to 1'
    """
    told = f"level {levels[0]}" if len(levels) == 1 else f"levels {levels[0]} to {levels[-1]}"
    return f"tidewheel: {spec.stream}, batch for commit {spec.sequence}, {told}"


def _task_environment(context: SparkContext) -> dict[str, str]:
    """Return the environment that a local Spark's Python workers have, with the code that was sent to them."""
    files = SparkFiles.getRootDirectory()
    code = [os.path.join(files, name) for name in context._python_includes or ()]
    path = os.pathsep.join(filter(None, [files, *code, os.environ.get("PYTHONPATH")]))
    return {**os.environ, **context.environment, "PYTHONPATH": path}


_SPARK_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.int16(): "smallint",
    pa.int8(): "tinyint",
}


def _spark_types(columns: pa.Schema) -> dict[str, str]:
    """Return Spark's names of the types of columns, as far as they may be keys."""
    return {field.name: _SPARK_TYPES.get(field.type, "") for field in columns}


def _pickled(plan: Plan) -> bytes:
    """Pickle the plan; the user's own modules go by value, since the workers cannot import them."""
    for module in direct(plan).values():
        cloudpickle.register_pickle_by_value(module)
    try:
        return pickling.dumps(plan)
    except Exception as error:
        raise ConfigError(
            f"the program cannot be sent to the tasks: {type(error).__name__}: {error}. A function must not hold on to "
            "connections, locks, the Spark session or the job itself; make such things inside the function"
        ) from error
