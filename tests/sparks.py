"""One Spark for all tests that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tidewheel.spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of a small local Spark, which is stopped after the last test."""
    yield session("local[2]", {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
    running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if running is not None:
        running.stop()
