"""Check that the hosts of a cluster have the packages that tasks need."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from tidewheel._core.logs import logger
from tidewheel._core.pandas_warning import ignore_pandas_warning
from tidewheel._engine.plan import Plan
from tidewheel._spark.cluster import default_parallelism, is_connect, master_of
from tidewheel._spark.masters import is_local
from tidewheel._spark.modules import used
from tidewheel.errors import ConfigError

_LOG = logger(__name__)

NEEDED = ("cloudpickle", "lmdb", "msgspec", "numpy", "obstore", "pandas", "pyarrow", "xxhash", "zstandard")
"""The packages without which no task of Tidewheel runs; Tidewheel itself is sent."""

ADVICE = (
    "Tidewheel and the program's own modules are sent. Install their dependencies on every host, or send them as a packed "
    "environment: --conf spark.archives=environment.tar.gz#environment with PYSPARK_PYTHON=environment/bin/python"
)
_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_MISMATCH = re.compile(r"PYTHON_VERSION_MISMATCH\].*?\((\d+, \d+)\)", re.S)
_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor \S+\)")

_PATIENCE_S = 20

Found = tuple[str, str, list[str]]
"""A host, its Python, and the packages that it lacks."""


def check_hosts(spark: SparkSession, plan: Plan) -> None:
    """Raise a `ConfigError` that names hosts without a needed package, before the job is claimed.

    It runs about as many tasks as there are cores. A host that joins later is not checked: its first failure is reported.
    """
    master = master_of(spark)
    if is_local(master):
        return
    names = sorted({*NEEDED, *used(plan)[1]})
    try:
        with warned_of_waiting(master):
            answers = ask_hosts(spark, _asking(names))
    except Exception as error:
        reason = explained(str(error))
        if reason is None:
            raise
        raise reason from error
    refuse([tuple(json.loads(answer)) for answer in answers])


def ask_hosts(spark: SparkSession, ask: Callable[[], str]) -> list[str]:
    """Call a function in as many tasks as run at a time, and return the texts that it returned.

    A function that is defined inside another is sent by value, and can import the modules of a host.
    """
    tasks = default_parallelism(spark)
    if not is_connect(spark):
        found: list[str] = (
            spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(lambda _: [ask()]).collect()
        )
        return found

    def ask_in_arrow(rows: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in rows:
            pass
        yield pa.RecordBatch.from_pydict({"answer": [ask()]})

    ignore_pandas_warning()
    return [row.answer for row in spark.range(0, tasks, 1, tasks).mapInArrow(ask_in_arrow, "answer string").collect()]


@contextlib.contextmanager
def warned_of_waiting(master: str, patience: float = _PATIENCE_S) -> Iterator[None]:
    """Log a warning if this takes so long that the cluster has probably no executor for the job."""
    text = "waiting for executors of %s: it must have a worker with the cores and memory that the job asks for"
    waiting = threading.Timer(patience, _LOG.warning, [text, master])
    waiting.daemon = True
    waiting.start()
    try:
        yield
    finally:
        waiting.cancel()


def refuse(answers: Iterable[Found]) -> None:
    """Raise a `ConfigError` that names every host that lacks a package, and the package."""
    lacking = sorted({f"{host} ({python}): {', '.join(names)}" for host, python, names in answers if names})
    if lacking:
        raise ConfigError(f"packages are missing where tasks run, on {'; on '.join(lacking)}. {ADVICE}")


def _asking(names: list[str]) -> Callable[[], str]:
    def ask() -> str:
        # It must run where nothing is installed.
        import importlib.util
        import json
        import socket
        import sys

        missing = [name for name in names if importlib.util.find_spec(name) is None]
        return json.dumps([socket.gethostname(), sys.executable, missing])

    return ask


def explained(text: str) -> ConfigError | None:
    """Return an explanation if an error of Spark means that a host lacks a module, or has no or another Python; otherwise None.

    >>> lost = "Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.2 executor 1): ModuleNotFoundError: No module named 'lmdb'"
    >>> str(explained(lost)).partition(". ")[0]
    "the host 10.0.0.2 has no Python module 'lmdb'"
    """
    hosts = _HOST.findall(text)
    host = f"the host {hosts[-1]}" if hosts else "a host where tasks run"
    module, program, mismatch = _MODULE.search(text), _PROGRAM.search(text), _MISMATCH.search(text)
    if module is not None:
        return ConfigError(f"{host} has no Python module {module[1]!r}. {ADVICE}")
    if program is not None:
        return ConfigError(
            f"{host} has no {program[1]} to run tasks with; name the Python that is there with PYSPARK_PYTHON or "
            "--conf spark.pyspark.python=PATH"
        )
    if mismatch is not None:
        return ConfigError(
            f"{host} runs tasks with Python {mismatch[1].replace(', ', '.')}, and the driver has another one: both must have the "
            "same minor version. Name such a Python with PYSPARK_PYTHON or --conf spark.pyspark.python=PATH"
        )
    return None
