"""Java options for the JVMs of tests, which run only for seconds; with a class archive a JVM starts in half the time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

_FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "java"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MAKE = """
import sys
from tidewheel import Job, RunOptions
from tidewheel.sinks import discard
from tidewheel.sources import files
from tidewheel._spark.session import session
spark = session("local[2]", {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": sys.argv[2]})
job = Job("archive", state=f"file://{sys.argv[1]}/state", n_shards=4)
source = job.source("in", files(f"{sys.argv[1]}/in", format="json", schema="user string, amount long"))
keyed = source.key_by("by", "user").stateful_map("n", lambda k, v, n: (n + 1, n + 1), default=0)
keyed.key_by("again", lambda n: n).stateful_map("m", lambda k, v, n: (n, n), default=0).sink("out", discard())
job.run(until="end", options=RunOptions(spark=spark, local=f"{sys.argv[1]}/local"))
spark.stop()
"""


def java_options() -> str:
    """Return the Java options of short-lived test JVMs: quick to start, with the archive if it was made."""
    archive = _archive()
    return f"{_QUICK} -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable" if archive.exists() else _QUICK


def java_environment() -> dict[str, str]:
    """Return the environment in which every Spark that is started has these options, also one that no test gives any."""
    return {"SPARK_SUBMIT_OPTS": java_options(), "SPARK_LAUNCHER_OPTS": _QUICK}


def prepare() -> None:
    """Make the archive unless it is there; a JVM that cannot make one costs nothing but the time."""
    archive = _archive()
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        _make(archive, Path(scratch))


def _make(archive: Path, scratch: Path) -> None:
    (scratch / "in").mkdir()
    (scratch / "in" / "one.json").write_text('{"user": "ada", "amount": 1}\n')
    fresh = archive.with_suffix(f".{os.getpid()}")
    options = f"{_QUICK} -XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", _MAKE, str(scratch), options], capture_output=True, timeout=300)
    if fresh.exists():
        fresh.rename(archive)


def _archive() -> Path:
    # The JVM checks by itself that an archive fits it, and goes on without one that does not.
    return _FOLDER / f"spark-{pyspark.__version__}.jsa"
