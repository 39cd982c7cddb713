"""The program as bytes that travel to the tasks, and the batch as one Spark query."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark import RDD, SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidewheel._connectors.bad_lines import BAD_LINE
from tidewheel._connectors.schema import arrow_schema
from tidewheel._core import pickling
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan, Schemas, columns_read, known_columns, source_key
from tidewheel._engine.task import SourceSplit
from tidewheel._engine.wire import ORDER, REPORT, SPARK_SCHEMA
from tidewheel._operators.graph import Node
from tidewheel._spark.cluster import is_connect, name_jobs
from tidewheel._spark.entry import levels_function, reports_function, reports_here
from tidewheel._spark.modules import direct
from tidewheel._spark.partitioning import partitioned
from tidewheel._spark.workers_beside import WorkersBeside
from tidewheel.errors import ConfigError


class Program:
    """A plan, pickled once, and how a batch of it becomes one Spark query with one action."""

    def __init__(self, plan: Plan, frame: DataFrame) -> None:
        """Take the plan and the streaming DataFrame that its sources make together."""
        self.plan = plan
        self._session = frame.sparkSession
        self._partitions: dict[int, RDD[None]] = {}
        """What plain jobs run on, by the number of their tasks, each made once."""
        self._bytes = _pickled(plan)
        self._digest = hashlib.sha256(self._bytes).hexdigest()
        types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        self.shared_key = source_key(plan, types) if len(plan.sources()) == 1 else None
        """The column by which a task that reads a whole batch finds its own records."""

    def query(self, frame: DataFrame, spec: BatchSpec) -> DataFrame:
        """Return the batch's query: wire rows that are the reports of its tasks."""
        name_jobs(self._session, job_name(spec, range(len(self.plan.levels))))
        return self.tail(frame.mapInArrow(self._level(spec, 0), SPARK_SCHEMA), spec)

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


def pruned(plan: Plan, frames: list[DataFrame]) -> list[DataFrame]:
    """Return each source's DataFrame with the columns that the program reads."""
    sources = dict(zip((node.id for node in plan.sources()), map(_arrow_columns, frames), strict=True))
    schemas = known_columns(plan, {number: schema for number, schema in sources.items() if schema is not None})
    return [_pruned(plan, node, frame, schemas) for node, frame in zip(plan.sources(), frames, strict=True)]


def _arrow_columns(frame: DataFrame) -> pa.Schema | None:
    """Return the columns that Python will get, or None where one has no type of Arrow: the batch says so itself."""
    try:
        zone = frame.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
        return arrow_schema(frame.drop(BAD_LINE).schema, zone)
    except PySparkException:
        return None


def source_frame(chosen: list[DataFrame]) -> DataFrame:
    """Return one DataFrame of all sources: the columns of the only one, or one struct column for each."""
    if len(chosen) == 1:
        return chosen[0]
    structs = [F.struct(*[F.col(f"`{name}`") for name in frame.columns]) for frame in chosen]
    union: DataFrame | None = None
    for number, frame in enumerate(chosen):
        columns: list[Column] = []
        for other, struct in enumerate(structs):
            empty = F.lit(None).cast(chosen[other].schema)
            columns.append((struct if other == number else empty).alias(f"s{other}"))
        own = frame.select(*columns)
        union = own if union is None else union.unionByName(own)
    assert union is not None
    return union


def with_ticks(frame: DataFrame, ticks: DataFrame) -> DataFrame:
    """Return the frame with one more source, whose rows never arrive: it makes Spark run batches while the others are quiet.

    Spark runs a batch when any source of the query has a new offset, whether or not its rows survive the query.
    """
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema.fields]
    return frame.union(ticks.where(F.lit(False)).select(*nothing))


def _pruned(plan: Plan, node: Node, frame: DataFrame, schemas: Schemas) -> DataFrame:
    if not frame.isStreaming:
        raise ConfigError(f"source {node.name!r}: it gave a DataFrame that is not streaming; use spark.readStream")
    wanted = columns_read(plan, node, schemas)
    shape = node.shapes[0]
    if shape.kind == "record":
        wanted = list(shape.columns() or ())
    if wanted is None:
        return frame
    known = [name for name in frame.columns if name != BAD_LINE]
    lacking = [name for name in wanted if name not in known]
    if lacking:
        raise ConfigError(
            f"source {node.name!r}: there is no column {', '.join(map(repr, lacking))}; it has {', '.join(known)}"
        )
    # Lines that are no records are rejected whatever columns the program reads.
    kept = [*wanted, BAD_LINE] if BAD_LINE in frame.columns else wanted
    return frame.select(*[F.col(f"`{name}`") for name in kept])


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
