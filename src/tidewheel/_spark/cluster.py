"""The functions of a Spark session that a run needs, for classic sessions and for Spark Connect.

A batch needs only `range(n).mapInArrow(…)`, a repartition and `collect`, which both kinds of session have. A classic session
also has a `SparkContext`: with it Spark's jobs get names, and jobs without a shuffle need no query.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tidewheel._spark.masters import CONNECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 1 << 14


def is_connect(spark: SparkSession) -> bool:
    """Return whether this is a session of Spark Connect: its Spark runs elsewhere, and its JVM cannot be reached."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def master_of(spark: SparkSession) -> str:
    """Return the master of the session's Spark; for Spark Connect, a word that stands for an unknown one elsewhere."""
    return CONNECT if is_connect(spark) else str(spark.sparkContext.master)


def application_of(spark: SparkSession) -> str:
    """Return an identifier of this Spark application, or of this session of Spark Connect."""
    return str(spark.session_id if is_connect(spark) else spark.sparkContext.applicationId)  # type: ignore[attr-defined]


def default_parallelism(spark: SparkSession) -> int:
    """Return how many tasks this Spark runs at a time by default."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    # Spark Connect does not report it, but a range has as many partitions.
    return max(1, spark.range(_ROWS).selectExpr("spark_partition_id()").distinct().count())


def most_tasks(spark: SparkSession) -> int | None:
    """Return how many tasks this Spark can run at a time; None: dynamic allocation adds executors without a limit."""
    if not allocates(spark):
        return default_parallelism(spark)
    most = _setting(spark, "spark.dynamicAllocation.maxExecutors", "")
    return int(most) * _executor_cores(spark) if most.isdecimal() else None


def request_executors(spark: SparkSession, tasks: int, before: int) -> None:
    """Request the executors for more tasks now, where dynamic allocation would request them when tasks wait."""
    cores = _executor_cores(spark) if allocates(spark) else 1
    more = -(-tasks // cores) - -(-before // cores)
    if more > 0 and allocates(spark):
        spark.sparkContext._jsc.sc().requestExecutors(more)


def allocates(spark: SparkSession) -> bool:
    """Return whether dynamic allocation starts executors for tasks that wait."""
    return not is_connect(spark) and _setting(spark, "spark.dynamicAllocation.enabled", "false") == "true"


def _executor_cores(spark: SparkSession) -> int:
    return int(_setting(spark, "spark.executor.cores", "1"))


def _setting(spark: SparkSession, name: str, default: str) -> str:
    # `SparkContext.getConf` copies all settings in more than a hundred calls of the JVM, and this is asked in every batch.
    return str(spark.conf.get(name, default))


class JobGroup:
    """The Spark jobs of one run, which can be cancelled together."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark, self._name, self._joined = spark, name, threading.local()

    def join(self) -> None:
        """Add the jobs that this thread starts from now on to the group."""
        if getattr(self._joined, "done", False):
            return
        if is_connect(self._spark):
            self._spark.addTag(_tag(self._name))
        else:
            self._spark.sparkContext.setJobGroup(self._name, self._name, interruptOnCancel=True)
        self._joined.done = True

    def cancel(self) -> None:
        """Cancel the jobs of the group. From any thread."""
        if is_connect(self._spark):
            self._spark.interruptTag(_tag(self._name))
        else:
            self._spark.sparkContext.cancelJobGroup(self._name)


def _tag(name: str) -> str:
    """Return a name as a tag, which has no commas."""
    return name.replace(",", "-")


def name_jobs(spark: SparkSession, name: str) -> None:
    """Name the jobs that this thread starts from now on in Spark's UI. Spark Connect has no names for jobs."""
    if not is_connect(spark):
        spark.sparkContext.setJobDescription(name)
