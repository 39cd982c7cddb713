"""The program as bytes that travel to the tasks, and the batch as one Spark query."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import reduce

import cloudpickle
import pyarrow as pa
from pyspark import RDD, SparkContext, SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidewheel._core import pickling
from tidewheel._core.own_code import own_code
from tidewheel._core.pandas_warning import ignore_pandas_warning
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan, source_key
from tidewheel._engine.task_layout import DEFAULT_LIMITS, SPARK_TASKS, Layout, SplitsByTask, TaskLimits
from tidewheel._engine.task_runner import TaskRunner
from tidewheel._engine.wire import ORDER, REPORT, SCHEMA
from tidewheel._spark.cluster import is_connect, name_jobs
from tidewheel._spark.entry import LevelTasks
from tidewheel._spark.modules import direct
from tidewheel._spark.partitioning import partitioned
from tidewheel._spark.placement import Placement
from tidewheel._spark.worker_pool import WorkerPool
from tidewheel.errors import ConfigError

_WIRE_ROWS = from_arrow_schema(SCHEMA)


class Program(TaskRunner):
    """A plan, pickled once, that runs as tasks of Spark."""

    place = SPARK_TASKS

    def __init__(
        self,
        plan: Plan,
        session: SparkSession,
        schemas: Mapping[str, pa.Schema],
        limits: TaskLimits = DEFAULT_LIMITS,
    ) -> None:
        """Take the plan, the session that runs its tasks, and the columns of each source."""
        self.plan, self.limits = plan, limits
        self._session = session
        self._placement = Placement(session)
        self._partitions: dict[int, tuple[list[str] | None, RDD[None]]] = {}
        """The RDDs that plain jobs run on, by the number of their tasks and the preferred hosts."""
        self._bytes = pickled(plan)
        self._digest = hashlib.sha256(self._bytes).hexdigest()
        columns = next(iter(schemas.values())) if len(schemas) == 1 else None
        self.shared_key = None if columns is None else source_key(plan, columns)
        """The column by which a task that reads a whole batch finds its own records."""

    def overhead(self, layout: Layout) -> float:
        """Return the estimated overhead of Spark for these tasks, in seconds."""
        return self.limits.query_s if layout.shuffles else self.limits.job_s

    def run(self, layout: Layout) -> list[bytes]:
        """Run the tasks in Spark: as a query if messages are shuffled or the session is one of Connect, else as a plain job."""
        name_jobs(self._session, job_name(layout.spec, layout.levels))
        ignore_pandas_warning()
        try:
            if layout.shuffles:
                first = self._read_by(layout, layout.levels[:1])
                return _reports_in(self._tail(first, layout.spec, layout.levels[0] + 1))
            if is_connect(self._session):
                return _reports_in(self._read_by(layout, layout.levels))
            # Planning a query takes longer than a small batch.
            return self._run_plain(layout)
        except Exception:
            self._placement.failed()
            raise

    def _run_plain(self, layout: Layout) -> list[bytes]:
        tasks = len(layout.splits)
        hosts = self._placement.hosts(tasks)
        queues = [[task] for task in range(tasks)]
        if hosts is not None and layout.spec.shared_key is not None:
            # To start a task takes Spark longer than such a task works, so those that would wait for the same core are one.
            # Of tasks with splits of their own, any core may take the next: they may differ in size.
            queues = self._placement.queues(hosts)
        places = None if hosts is None else [hosts[queue[0]] for queue in queues]
        placed, partitions = self._partitions.get(len(queues), (None, None))
        if partitions is None or placed != places:
            partitions = self._placement.partitions(len(queues), places)
            self._partitions[len(queues)] = places, partitions
        level = self._level(layout.spec, layout.levels, layout.splits, queues=queues)
        reports: list[bytes] = self._session.sparkContext.runJob(partitions, level.reports)
        return reports

    def run_with_frames(self, layout: Layout, frames: Mapping[int, DataFrame]) -> list[bytes]:
        """Run a batch with rows that Spark has read, by the number of their source, next to the splits that tasks read."""
        spec = layout.spec
        name_jobs(self._session, job_name(spec, layout.levels))
        ignore_pandas_warning()
        # The splits first: a task finds its own by the number of its partition.
        parts = [self._read_by(layout, range(1))] if any(layout.splits) else []
        for number, frame in frames.items():
            level = self._level(spec, range(1), source=number)
            parts.append(frame.mapInArrow(level.arrow_function(), _WIRE_ROWS))
        return _reports_in(self._tail(reduce(DataFrame.union, parts), spec, 1))

    def worker_pool(self) -> WorkerPool:
        """Return a pool for batches without a shuffle, with as many processes as a local Spark has tasks."""
        context = self._session.sparkContext
        most = min(context.defaultParallelism, os.cpu_count() or 1)
        return WorkerPool(self._bytes, self._digest, _task_environment(context), most, self.limits)

    def _level(
        self,
        spec: BatchSpec,
        levels: range,
        splits: SplitsByTask = (),
        source: int = 0,
        queues: Sequence[Sequence[int]] = (),
    ) -> LevelTasks:
        return LevelTasks(self._bytes, self._digest, own_code(), spec, levels, splits, source, queues)

    def _read_by(self, layout: Layout, levels: range) -> DataFrame:
        """Return the rows of tasks that run these levels, and each read their splits."""
        tasks = len(layout.splits)
        level = self._level(layout.spec, levels, layout.splits)
        return self._session.range(0, tasks, 1, tasks).mapInArrow(level.arrow_function(), _WIRE_ROWS)

    def _tail(self, rows: DataFrame, spec: BatchSpec, first: int) -> DataFrame:
        """Return the levels from `first` on, fed with wire rows. A task gets its rows in the order of their sources."""
        hosts = self._placement.hosts(spec.parallelism)
        for level in range(first, len(self.plan.levels)):
            shuffled = partitioned(rows, spec.parallelism).sortWithinPartitions(*ORDER)
            tasks = self._level(spec, range(level, level + 1))
            rows = self._placement.placed(shuffled, hosts).mapInArrow(tasks.arrow_function(), _WIRE_ROWS)
        return rows


def _reports_in(rows: DataFrame) -> list[bytes]:
    return [bytes(row.payload) for row in rows.collect() if row.edge == REPORT]


def job_name(spec: BatchSpec, levels: range) -> str:
    """Return the name of a batch's jobs in Spark's UI.

    >>> job_name(BatchSpec("orders", "", "", 6, 0, 7, "", 64, 2, 0), range(0, 2))
    'tidewheel: orders, batch for commit 7, levels 0 to 1'
    """
    shown = f"level {levels[0]}" if len(levels) == 1 else f"levels {levels[0]} to {levels[-1]}"
    return f"tidewheel: {spec.stream}, batch for commit {spec.sequence}, {shown}"


def _task_environment(context: SparkContext) -> dict[str, str]:
    """Return the environment that a local Spark's Python workers have, with the code that was sent to them."""
    files = SparkFiles.getRootDirectory()
    code = [os.path.join(files, name) for name in context._python_includes or ()]
    path = os.pathsep.join(filter(None, [files, *code, os.environ.get("PYTHONPATH")]))
    return {**os.environ, **context.environment, "PYTHONPATH": path}


def pickled(plan: Plan) -> bytes:
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
