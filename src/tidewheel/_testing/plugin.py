"""The pytest plugin: a Spark for tests, started once per session and only if a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "1g",
    # Tests are short: code that is compiled quickly beats code that runs quickly.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """Return the settings of the tests' Spark; a project that needs others has a fixture of this name."""
    return dict(SETTINGS)


@pytest.fixture(scope="session")
def spark(spark_settings: dict[str, str]) -> Iterator[SparkSession]:
    """Give a Spark with two cores to every test of the session; starting it takes seconds, and its first batches more."""
    from tidewheel._spark.session import session

    started = session("local[2]", spark_settings)
    yield started
    started.stop()
