"""The Spark session of a run, and the default settings of a Spark that a run starts."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidewheel._core.pandas_warning import ignore_pandas_warning
from tidewheel._spark import small_files
from tidewheel._spark.checkpoint_folder import COMPACT_INTERVAL
from tidewheel._spark.cluster import is_connect
from tidewheel._spark.failures import start_failure
from tidewheel._spark.java import java_for_spark
from tidewheel._spark.masters import check_master, is_local, is_remote
from tidewheel._spark.shipping import DAEMON
from tidewheel._spark.versions import check_python, check_version
from tidewheel._spark.worker_deaths import record_deaths
from tidewheel.errors import ConfigError

_CONNECT_PORT, _CONNECT_SECONDS = 15002, 10.0
_TASK_ATTEMPTS = 4
"""How often a task may fail before its batch fails: Spark's default on a cluster."""
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.ui.showConsoleProgress": "false",
    # Over TCP, each task waits 40 ms for its first row: Spark writes it behind another message, and so Nagle's algorithm holds it
    # back until the delayed acknowledgement of that message. Spark 4.0 does not know these two settings.
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark's default is the JVM's folder for temporary files. On YARN its path is longer than that of a socket may be.
    "spark.python.unix.domain.socket.dir": "/tmp",
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
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit has started this process."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SESSION = {
    # Adaptive execution would choose partitions by itself; here a partition is a task's set of shards.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Every so many batches Spark writes a list of all files that a source has seen.
    "spark.sql.streaming.fileSource.log.compactInterval": str(COMPACT_INTERVAL),
    # The checkpoint folder of a DataFrame's query is rebuilt from offsets in this format.
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
}

_started: list[SparkContext] = []
_starting = threading.Lock()
"""Held while Spark is looked for and started: runs that begin at the same time share one."""


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session for a run: a new one of the Spark that runs in this process, or of one that is started now.

    Under spark-submit, its master and its settings are used. The Python that Spark starts is the one this program runs in,
    unless tasks run on other hosts and `PYSPARK_PYTHON` or `spark.pyspark.python` names theirs.

    A master such as `sc://host:15002` is a server of Spark Connect.
    """
    ignore_pandas_warning()
    if is_remote(master):
        return _connected(str(master), conf or {})
    own = started(master, conf or {}).newSession()
    small_files.rename_plainly(own)
    for name, value in {**_SESSION, **_runtime(conf or {})}.items():
        own.conf.set(name, value)
    return own


def _connected(url: str, conf: Mapping[str, str]) -> SparkSession:
    check_python()
    check_version(pyspark.__version__)
    try:
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError as error:
        raise ConfigError(
            f"{url} is a server of Spark Connect, whose client needs packages that are missing: {error}. Install them with "
            "pip install 'tidewheel[connect]'"
        ) from error
    try:
        _reach(url)
    except OSError as error:
        raise ConfigError(f"Spark Connect at {url} does not answer: {error}") from error
    try:
        own = ConnectSession.builder.remote(url).create()
        for name, value in {"spark.sql.adaptive.enabled": "false", **_runtime(conf)}.items():
            own.conf.set(name, value)
    except PySparkException as error:
        raise ConfigError(f"Spark Connect at {url} refuses a session: {error}") from error
    return cast(SparkSession, own)  # It has all methods of a session that a batch needs.


def release(spark: SparkSession, master: str | None) -> None:
    """End a session that `session` returned for this master. One that is not of Spark Connect ends with the process."""
    if is_remote(master):
        try:
            _reach(str(master))
        except OSError:
            # A client that is not closed would try to release the session when the process exits.
            cast(Any, spark).client.close()
        else:
            spark.stop()


def _reach(url: str) -> None:
    """Raise an `OSError` if no server answers there: the client of Spark Connect would try for minutes."""
    address = urlsplit(url)
    socket.create_connection((address.hostname or "", address.port or _CONNECT_PORT), _CONNECT_SECONDS).close()


def started(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """Return the session of the Spark that runs in this process, or of one that is started now."""
    with _starting:
        running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
        if running is None:
            running = _start(master, conf)
            _started.append(running.sparkContext)
            small_files.write_plainly(running)
    return running


def is_own(spark: SparkSession) -> bool:
    """Return whether the session's JVM was started here: not by spark-submit, and not by the user's own session."""
    return (
        _GATEWAY not in os.environ
        and not is_connect(spark)
        and any(spark.sparkContext is context for context in _started)
    )


def _start(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    check_python()
    check_version(pyspark.__version__)
    submitted = _submitted()
    chosen = with_retries(master or submitted.get("spark.master") or os.environ.get("SPARK_MASTER") or "local[*]")
    settings = settings_for(chosen, submitted, conf)
    if is_local(chosen):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ[_PYTHON] = sys.executable
        record_deaths()
    else:
        os.environ[_PYTHON] = settings.get("spark.pyspark.python") or os.environ.get(_PYTHON) or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {"spark.app.name": "tidewheel", **settings, "spark.master": chosen}
    if submitted:
        return _created(settings)
    check_master(chosen)
    with java_for_spark() as version:
        # The log's settings have to be there before Spark is, and a user's own Java options stay.
        log = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        options = (log, small_files.java_option(version), settings.get(_JAVA_OPTIONS, ""))
        return _created({**settings, _JAVA_OPTIONS: " ".join(filter(None, options))})


def _created(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        created = builder.getOrCreate()
    except (Py4JJavaError, PySparkException) as error:
        raise ConfigError(
            f"Spark does not start with the master {settings['spark.master']}: {start_failure(error)}"
        ) from error
    # Spark deletes this socket only if it is stopped before its process ends.
    socket_of_driver = created.sparkContext._accumulatorServer.server_address
    if isinstance(socket_of_driver, str):
        atexit.register(Path(socket_of_driver).unlink, missing_ok=True)
    return created


def settings_for(master: str, submitted: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a Spark that is started: settings of spark-submit and the user, and our defaults for the rest.

    >>> settings_for("yarn", {}, {"spark.ui.enabled": "true"})["spark.ui.enabled"]
    'true'
    """
    return {**_DEFAULTS, **(_LOCAL if is_local(master) else _ELSEWHERE), **submitted, **conf}


def _submitted() -> dict[str, str]:
    """Return the settings that spark-submit was given, if it started this process; else nothing."""
    if _GATEWAY not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def with_retries(master: str) -> str:
    """Return a master whose tasks may fail a few times, as on a cluster; a number given by the user stays.

    >>> with_retries("local[*]"), with_retries("local"), with_retries("local[2,1]"), with_retries("yarn")
    ('local[*,4]', 'local[1,4]', 'local[2,1]', 'yarn')
    """
    if master == "local":
        return f"local[1,{_TASK_ATTEMPTS}]"
    if is_local(master) and "," not in master:
        return f"{master.removesuffix(']')},{_TASK_ATTEMPTS}]"
    return master


def _runtime(conf: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in conf.items() if name.startswith("spark.sql.") and name not in _SESSION}
