"""Jars for the tests: Kafka's broker, Spark's Kafka connector and YARN, downloaded once by `mvn`.

The poms below `jars` name them. They are kept below `.cache/kafka`, in a folder for each state of a pom.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_POMS = Path(__file__).resolve().parent / "jars"
_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka"


class NoMavenError(Exception):
    """There is no `mvn` to bring the jars with."""


def broker_jars() -> Path:
    """Return the folder with the jars of Apache Kafka."""
    return _brought("kafka-broker")


def connector_jars() -> Path:
    """Return the folder with the jars of Spark's own connector, all of which belong into `spark.jars`."""
    return _brought("spark-kafka")


def registry_archive() -> Path:
    """Return the folder with the archive of the schema registry."""
    return _brought("apicurio-registry")


def iceberg_rest_jars() -> Path:
    """Return the folder with the jars of Iceberg's REST catalog."""
    return _brought("iceberg-rest")


def yarn_jars() -> Path:
    """Return the folder with the jars of Hadoop's resource manager and node manager."""
    return _brought("hadoop-yarn")


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let one process at a time fill the cache: the workers of a test run begin together."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _brought(name: str) -> Path:
    pom = _POMS / f"{name}.xml"
    folder = _CACHE / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        with one_at_a_time():
            if not folder.exists():
                _bring(pom, folder)
    return folder


def _bring(pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoMavenError("there is no `mvn` on the PATH to bring the jars with")
    fresh = folder.with_suffix(".fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    # -U: what could not be had yesterday is asked for again.
    command = [maven, "-B", "-q", "-U", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        said = f"{ended.stdout}{ended.stderr}"[-3000:]
        raise RuntimeError(
            f"mvn could not bring {pom.name} (for Kafka, TIDEWHEEL_TEST_KAFKA=tansu does without):\n{said}"
        )
    fresh.rename(folder)
