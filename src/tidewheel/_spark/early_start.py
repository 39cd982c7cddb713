"""Spark, started in the background while the program is loaded and checked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tidewheel._spark.masters import is_local, is_remote


def start_early(master: str | None, conf: Mapping[str, str]) -> None:
    """Begin to start the Spark that a run with these settings will ask for, and its Python workers; return at once.

    The run waits for this Spark instead of starting one. If the start fails, the run tries again and reports the error.
    """
    if is_remote(master):
        return
    threading.Thread(target=_start, args=(master, conf), name="tidewheel-early-start", daemon=True).start()


def _start(master: str | None, conf: Mapping[str, str]) -> None:
    # In this thread: importing Spark takes a moment too.
    from tidewheel._spark.session import started

    with contextlib.suppress(Exception):
        spark = started(master, conf)
        if is_local(spark.sparkContext.master):
            # The process that workers are forked from imports a good deal: it does so while the JVM gets ready for the query.
            # Not as an RDD, which would get a process of its own.
            spark.range(0, 1, 1, 1).mapInArrow(_pass_on, "id long").collect()


def _pass_on(batches: Iterator[Any]) -> Iterator[Any]:
    return batches
