"""The Spark session of a run, with the settings that exactly-once depends on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidewheel._spark import small_files
from tidewheel._spark.java import check_java
from tidewheel._spark.masters import is_local
from tidewheel._spark.shipping import DAEMON
from tidewheel._spark.versions import check_version
from tidewheel.errors import ConfigError

_FIXED = {
    # A recomputed map task could feed two versions of itself to its readers: a fetch failure fails the batch instead,
    # and the batch runs again from its base.
    "spark.stage.maxConsecutiveAttempts": "1",
    # Two attempts of one task at once would both be right; one of them would be for nothing.
    "spark.speculation": "false",
}
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.ui.showConsoleProgress": "false",
}
_DAEMON = "spark.python.daemon.module"
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    _DAEMON: "tidewheel._spark.daemon",
}
_ELSEWHERE = {
    _DAEMON: DAEMON,
    # Tasks would queue for the host that read a small batch, up to three seconds each, while the others are idle.
    "spark.shuffle.reduceLocality.enabled": "false",
}
_PYTHON = "PYSPARK_PYTHON"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SESSION = {
    # Adaptive execution would choose partitions by itself; here a partition is a task's set of shards.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session for a run: a new one of the Spark that runs in this process, or of one that is started now.

    Under spark-submit, what it was told stands: the master, and every setting but those that exactly-once depends on. The
    Python that Spark starts is the one this program runs in, unless tasks run on other hosts and `PYSPARK_PYTHON` or
    `spark.pyspark.python` names theirs.
    """
    running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if running is None:
        running = _start(master, conf or {})
        small_files.write_plainly(running)
    own = running.newSession()
    small_files.rename_plainly(own)
    for name, value in {**_SESSION, **_runtime(conf or {})}.items():
        own.conf.set(name, value)
    return own


def _start(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    check_version(pyspark.__version__)
    submitted = _submitted()
    chosen = master or submitted.get("spark.master") or os.environ.get("SPARK_MASTER") or "local[*]"
    settings = settings_for(chosen, submitted, conf)
    if is_local(chosen):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ[_PYTHON] = sys.executable
    else:
        os.environ[_PYTHON] = settings.get("spark.pyspark.python") or os.environ.get(_PYTHON) or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if not submitted:
        forks = small_files.java_option(check_java())
        # The log's settings have to be there before Spark is, and a user's own Java options stay.
        log = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        settings[_JAVA_OPTIONS] = f"{log} {forks} {settings.get(_JAVA_OPTIONS, '')}".strip()
    builder = SparkSession.builder.appName(settings.get("spark.app.name", "tidewheel"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.master(chosen).getOrCreate()
    except Py4JJavaError as error:
        raise ConfigError(
            f"Spark does not start with the master {chosen}: {error.java_exception.toString()}"
        ) from error


def settings_for(master: str, submitted: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a Spark that is started: ours give way to what spark-submit and the user said, the fixed do not.

    >>> settings_for("yarn", {"spark.ui.enabled": "true"}, {"spark.speculation": "true"})["spark.speculation"]
    'false'
    """
    return {**_DEFAULTS, **(_LOCAL if is_local(master) else _ELSEWHERE), **submitted, **conf, **_FIXED}


def _submitted() -> dict[str, str]:
    """Return the settings that spark-submit was given, if it started this process; else nothing."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def check_session(spark: SparkSession) -> None:
    """Refuse a Spark that was started with settings under which a batch might not be what it reports."""
    context = spark.sparkContext
    settings = context.getConf()
    local = is_local(context.master)
    for name, value in _FIXED.items():
        if settings.get(name, "") != value and not (local and name == "spark.stage.maxConsecutiveAttempts"):
            if name == "spark.speculation" and settings.get(name, "false") == "false":
                continue
            raise ConfigError(
                f"Tidewheel needs {name}={value}, and this Spark was started with {settings.get(name, 'its default')}; "
                f"start it with --conf {name}={value}"
            )


def _runtime(conf: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in conf.items() if name.startswith("spark.sql.") and name not in _SESSION}
