"""What the hosts of a cluster must have, and what it means when one lacks it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from tidewheel._core.logs import logger
from tidewheel._engine.plan import Plan
from tidewheel._spark.cluster import default_parallelism, is_connect, master_of
from tidewheel._spark.masters import is_local
from tidewheel._spark.modules import used
from tidewheel.errors import ConfigError

_LOG = logger(__name__)

NEEDED = ("cloudpickle", "lmdb", "msgspec", "numpy", "obstore", "pandas", "pyarrow", "xxhash", "zstandard")
"""The packages without which no task of Tidewheel runs; Tidewheel itself is sent."""

_ADVICE = (
    "Tidewheel and the program's own modules are sent, what they import must be installed on every host, or travel in a packed "
    "environment: --conf spark.archives=environment.tar.gz#environment with PYSPARK_PYTHON=environment/bin/python"
)
_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor \S+\)")

_PATIENCE_S = 20

Found = tuple[str, str, list[str]]
"""A host, its Python, and the packages that it lacks."""


def check_hosts(spark: SparkSession, plan: Plan) -> None:
    """Refuse to run on hosts that lack a package, before anything is claimed; name the hosts and the packages.

    It asks about as many tasks as there are cores: a host that joins later is not asked, and is told of by its first failure.
    """
    master = master_of(spark)
    if is_local(master):
        return
    names = sorted({*NEEDED, *used(plan)[1]})
    tasks = default_parallelism(spark)
    waiting = threading.Timer(_PATIENCE_S, _tell_of_waiting, [master])
    waiting.daemon = True
    waiting.start()
    try:
        answers = _answers(spark, tasks, _asking(names))
    except Exception as error:
        reason = explained(str(error))
        if reason is None:
            raise
        raise reason from error
    finally:
        waiting.cancel()
    refuse(answers)


def _answers(spark: SparkSession, tasks: int, ask: Callable[[Iterable[int]], Iterable[Found]]) -> list[Found]:
    if not is_connect(spark):
        found: list[Found] = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(ask).collect()
        return found

    def ask_in_arrow(rows: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in rows:
            pass
        columns = zip(*ask(()), strict=True)
        kinds = (pa.string(), pa.string(), pa.list_(pa.string()))
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, ["host", "python", "names"])

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(ask_in_arrow, "host string, python string, names array<string>")
    return [(row.host, row.python, list(row.names)) for row in rows.collect()]


def _tell_of_waiting(master: str) -> None:
    _LOG.warning(
        "waiting for executors of %s: it must have a worker with the cores and memory that the job asks for", master
    )


def refuse(answers: Iterable[Found]) -> None:
    """Raise a `ConfigError` that names every host that lacks something, and what."""
    lacking = sorted({f"{host} ({python}): {', '.join(names)}" for host, python, names in answers if names})
    if lacking:
        raise ConfigError(f"packages are missing where tasks run, on {'; on '.join(lacking)}. {_ADVICE}")


def _asking(names: list[str]) -> Callable[[Iterable[int]], Iterable[Found]]:
    def ask(_: Iterable[int]) -> Iterator[Found]:
        # It travels by value and must run where nothing is installed.
        import importlib.util
        import socket

        missing = [name for name in names if importlib.util.find_spec(name) is None]
        yield socket.gethostname(), sys.executable, missing

    return ask


def explained(text: str) -> ConfigError | None:
    """Return what an error of Spark means if it is of a host that lacks a module or a Python, else None.

    >>> lost = "Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.2 executor 1): ModuleNotFoundError: No module named 'lmdb'"
    >>> str(explained(lost)).partition(". ")[0]
    "the host 10.0.0.2 has no Python module 'lmdb'"
    """
    hosts = _HOST.findall(text)
    host = f"the host {hosts[-1]}" if hosts else "a host where tasks run"
    module, program = _MODULE.search(text), _PROGRAM.search(text)
    if module is not None:
        return ConfigError(f"{host} has no Python module {module[1]!r}. {_ADVICE}")
    if program is not None:
        return ConfigError(
            f"{host} has no {program[1]} to run tasks with; name the Python that is there with PYSPARK_PYTHON or "
            "--conf spark.pyspark.python=PATH"
        )
    return None
