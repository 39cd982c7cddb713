"""Keep tasks on the hosts that have the local copies of their shards: by the preferred locations of Spark's partitions.

Spark would start a task on any free executor, and over time each host would have a copy of every shard. With a preferred
location, Spark waits for that host a little (`spark.locality.wait`), and then runs the task elsewhere. So a task may run
anywhere, and a preference is never needed for a right result.

The partitions of a shuffle have no place for preferences that a driver chooses. A small RDD around them has
(`PlacedRDD.java`). Spark's own compiler, which it has for its queries, compiles it when a run starts, and executors get it as
a jar.
"""

from __future__ import annotations

import pickle
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from tidewheel._core.logs import logger
from tidewheel._spark.cluster import allocates, is_connect, master_of
from tidewheel._spark.homes import homes, queues
from tidewheel._spark.masters import is_local
from tidewheel._spark.process_folder import process_folder

_LOG = logger(__name__)

_SOURCE = Path(__file__).with_name("PlacedRDD.java")
_CLASS = "tidewheel.PlacedRDD"
_JAR = "tidewheel-placed.jar"
_REFUSALS = (Py4JError, PySparkException, AttributeError, TypeError)
"""The errors of a Spark that hides its JVM, or parts of it, from Python."""
_jars: set[str] = set()
"""The Spark applications whose executors have the jar."""


class Placement:
    """Where the tasks of one session should run. On a local Spark and with Spark Connect, nothing is preferred."""

    def __init__(self, session: SparkSession) -> None:
        """Take the session; nothing is compiled yet."""
        self._session = session
        self._works = not is_connect(session) and not is_local(master_of(session))
        self._placed: Any = None
        """The constructor of `PlacedRDD`."""
        self._running: Counter[str] = Counter()
        """How many executors each host had when `hosts` was called."""
        self._homes: dict[int, list[str]] = {}
        self._latest: list[str] = []
        self._has_failed = False

    def failed(self) -> None:
        """Let the tasks of the next batch run anywhere: a host may be why this one failed, for example by a full disk."""
        self._has_failed = True

    def hosts(self, tasks: int) -> list[str] | None:
        """Return the host of each of a batch's tasks; None if they may run anywhere."""
        has_failed, self._has_failed = self._has_failed, False
        if not self._works or has_failed:
            return None
        try:
            executors = self._executors()
        except _REFUSALS as error:
            self._give_up(error)
            return None
        if not executors:
            return None
        self._running = executors
        self._latest = self._homes[tasks] = homes(tasks, executors, self._homes.get(tasks, self._latest))
        return self._latest

    def queues(self, hosts: list[str]) -> list[list[int]]:
        """Return which tasks would wait for the same core, given what `hosts` has just returned: one list for each core."""
        executors = sum(self._running.values())
        # Dynamic allocation has to see tasks wait.
        if len(hosts) > executors and not allocates(self._session):
            try:
                cores = max(1, self._slots() // executors)
                return queues(hosts, {host: number * cores for host, number in self._running.items()})
            except _REFUSALS as error:
                _LOG.info("each task of a batch is a task of Spark, because this Spark hides its cores: %s", error)
        return [[task] for task in range(len(hosts))]

    def partitions(self, tasks: int, hosts: list[str] | None) -> RDD[Any]:
        """Return an RDD with so many partitions, each with one element, that prefer these hosts."""
        context = self._session.sparkContext
        if hosts is not None:
            try:
                return self._located(hosts)
            except _REFUSALS as error:
                self._give_up(error)
        return context.parallelize([None] * tasks, tasks)

    def placed(self, frame: DataFrame, hosts: list[str] | None) -> DataFrame:
        """Return a frame whose partitions prefer these hosts."""
        if hosts is None or not self._works:
            return frame
        try:
            arguments = [frame._jdf.queryExecution().toRdd(), self._array("String", hosts)]
            rows = self._constructor().newInstance(self._array("Object", arguments))
            frames = self._session._jsparkSession
            return DataFrame(frames.internalCreateDataFrame(rows, frame._jdf.schema(), False), self._session)
        except _REFUSALS as error:
            self._give_up(error)
            return frame

    def _give_up(self, error: Exception) -> None:
        self._works = False
        _LOG.info("tasks run on any host, because this Spark does not let a driver place them: %s", error)

    def _located(self, hosts: list[str]) -> RDD[Any]:
        context, element = self._session.sparkContext, pickle.dumps(None)
        jvm: Any = context._jvm
        located = [jvm.scala.Tuple2(element, jvm.PythonUtils.toSeq([host])) for host in hosts]
        tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        rows = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(located), tag)
        return RDD(jvm.org.apache.spark.api.java.JavaRDD.fromRDD(rows, tag), context, CPickleSerializer())

    def _array(self, kind: str, items: Sequence[Any]) -> Any:
        """Return a Java array of a class of `java.lang`."""
        gateway: Any = self._session.sparkContext._gateway
        array = gateway.new_array(getattr(gateway.jvm.java.lang, kind), len(items))
        for number, item in enumerate(items):
            array[number] = item
        return array

    def _executors(self) -> Counter[str]:
        """Return how many executors each host has."""
        context = self._session.sparkContext
        members = str(context._jsc.sc().getExecutorMemoryStatus().keys().mkString(",")).split(",")
        found = Counter(member.rpartition(":")[0] for member in members)
        # The driver is a member too.
        found.subtract([str(self._session.conf.get("spark.driver.host", ""))])
        return +found

    def _slots(self) -> int:
        """Return how many tasks the executors run at a time."""
        spark = self._session.sparkContext._jsc.sc()
        return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))

    def _constructor(self) -> Any:
        """Return the constructor of `PlacedRDD`, which this driver and the executors have from now on."""
        if self._placed is None:
            context = self._session.sparkContext
            jvm: Any = context._jvm
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(_SOURCE.read_text())
            self._placed = compiler.getClassLoader().loadClass(_CLASS).getConstructors()[0]
            if context.applicationId not in _jars:
                jar = process_folder("code") / _JAR
                with zipfile.ZipFile(jar, "w") as archive:
                    for name, code in compiler.getBytecodes().items():
                        archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
                context._jsc.addJar(str(jar))
                _jars.add(context.applicationId)
        return self._placed
