"""The process that Spark forks its Python workers from, with everything that a task imports already there.

Without it every worker spends a second or more on imports, at its first task and whenever it was idle for a minute.
Spark starts it as `python -m tidewheel._spark.daemon` (`spark.python.daemon.module`), and on other hosts, where the file comes in
the archive of `shipped.py`, as `python -m tidewheel_daemon`.
"""

from __future__ import annotations

import contextlib
import gc


def preload() -> None:
    """Import what tasks need. What this host lacks is told by the task that needs it: a daemon that dies says nothing."""
    with contextlib.suppress(ImportError):
        import pandas  # noqa: F401  pyspark's mapInArrow imports it
        import pyarrow.compute
        import pyarrow.parquet  # noqa: F401
        import pyspark.sql.pandas.serializers
        import pyspark.worker  # noqa: F401


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    # What is here now stays for good: collections in the workers need not look at it, nor copy its pages.
    gc.freeze()
    manager()
