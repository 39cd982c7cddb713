"""Run all checks, in an order in which each can rely on those before it."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tidewheel._doctor import hosts
from tidewheel._doctor import store as stores
from tidewheel._doctor.finding import Finding, fine, missing, timed
from tidewheel._spark.cluster import default_parallelism, master_of
from tidewheel._spark.diagnosis import SPARK_ERRORS, readable
from tidewheel._spark.hosts import NEEDED, warned_of_waiting
from tidewheel._spark.masters import is_local
from tidewheel._spark.session import release, session
from tidewheel._spark.shipping import ship
from tidewheel._spark.versions import check_python, check_version
from tidewheel._storage import Store, open_store
from tidewheel.errors import TidewheelError

_JOB_MS = 2_000.0


def examine(
    state: str,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    local: str | None = None,
    packages: Collection[str] = (),
    spark: Any = None,
) -> Iterator[Finding]:
    """Yield the findings, each as soon as it is there. `packages` are needed in addition to those of Tidewheel.

    A session that is given is used as it is; otherwise one is made, as for a run, for this master.
    """
    needed = sorted({*NEEDED, *packages})
    yield python_version(sys.version_info[:2])
    yield from _packages(needed)
    store, folder = None, f"doctor-{secrets.token_hex(8)}"
    try:
        store = open_store(state)
    except TidewheelError as error:
        yield missing(stores.STATE, str(error), "correct --state")
    try:
        found = [] if store is None else list(stores.check_store(store, folder))
        yield from found
        usable = bool(found) and all(finding.level != "missing" for finding in found)
        try:
            started = spark or session(master, conf or {})
        except TidewheelError as error:
            yield missing("Spark", str(error))
            return
        try:
            yield from _on_spark(started, needed, local, store if usable else None, folder)
        except SPARK_ERRORS as error:
            yield missing("Spark", str(readable(error, "a job on the hosts")))
        if spark is None:
            release(started, master)
    finally:
        if store is not None:
            with contextlib.suppress(TidewheelError):  # The finding about the store says why.
                stores.remove(store, folder)


def _on_spark(spark: Any, needed: list[str], local: str | None, store: Store | None, folder: str) -> Iterator[Finding]:
    with warned_of_waiting(master_of(spark)):
        yield from _spark(spark)
    lacking = False
    for finding in hosts.check_hosts(spark, needed, local):
        lacking = lacking or finding.level == "missing"
        yield finding
    if lacking or store is None or is_local(master_of(spark)):
        return  # Tasks that cannot run cannot tell more, and a local task reaches what the driver reaches.
    ship(spark)
    yield from hosts.check_reach(spark, store, folder, b"first")


def python_version(version: tuple[int, ...]) -> Finding:
    """Return whether a version of Python is supported."""
    try:
        check_python(version)
    except TidewheelError as error:
        return missing("Python", str(error))
    return fine("Python", f"{version[0]}.{version[1]} at {sys.executable}")


def spark_version(version: str) -> Finding:
    """Return whether a version of Spark is supported."""
    try:
        check_version(version)
    except TidewheelError as error:
        return missing("Spark", str(error))
    return fine("Spark", version)


def _packages(needed: list[str]) -> Iterator[Finding]:
    lacking = [name for name in needed if importlib.util.find_spec(name) is None]
    if lacking:
        yield missing("packages", f"this Python has no {', '.join(lacking)}", f"pip install {' '.join(lacking)}")
    else:
        yield fine("packages", "this Python has all of them")


def _spark(spark: Any) -> Iterator[Finding]:
    yield spark_version(str(spark.version))
    yield fine("Spark", f"{master_of(spark)} runs {default_parallelism(spark)} tasks at a time")
    spark.range(1).collect()  # The first job also loads what all need.
    began = time.perf_counter()
    spark.range(1).collect()
    fix = "the cluster is busy or far away: give the job executors of its own, and run the driver next to them"
    yield timed("Spark", "an empty job", 1000 * (time.perf_counter() - began), _JOB_MS, fix)
