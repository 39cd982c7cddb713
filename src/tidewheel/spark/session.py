"""The Spark session of a run, with the settings that exactly-once depends on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tidewheel.errors import ConfigError
from tidewheel.spark.java import check_java

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
    "spark.python.daemon.module": "tidewheel.spark.daemon",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
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

    The Python that Spark starts is the one this program runs in.
    """
    running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if running is None:
        check_java()
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        builder = SparkSession.builder.appName("tidewheel")
        chosen = master or os.environ.get("SPARK_MASTER") or "local[*]"
        defaults = dict(_DEFAULTS)
        if chosen.startswith("local"):
            defaults |= _LOCAL
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {**defaults, **(conf or {}), **_FIXED}
        # The log's settings have to be there before Spark is, and a user's own Java options stay.
        log = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        settings[_JAVA_OPTIONS] = f"{log} {settings.get(_JAVA_OPTIONS, '')}".strip()
        for name, value in settings.items():
            builder = builder.config(name, value)
        running = builder.master(chosen).getOrCreate()
    check_session(running)
    own = running.newSession()
    for name, value in {**_SESSION, **_runtime(conf or {})}.items():
        own.conf.set(name, value)
    return own


def check_session(spark: SparkSession) -> None:
    """Refuse a Spark that was started with settings under which a batch might not be what it reports."""
    context = spark.sparkContext
    settings = context.getConf()
    local = str(context.master).startswith("local")
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
