"""The pytest plugin: a Spark session for tests, started once, when a test first uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "1g",
    # Tests are short, so fast compilation matters more than fast code.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """Return the settings of the Spark session for tests. Override this fixture to change them."""
    return dict(SETTINGS)


@pytest.fixture(scope="session")
def spark(spark_settings: dict[str, str]) -> Iterator[SparkSession]:
    """Provide a Spark session with two cores for all tests. Its start and its first batches take some seconds."""
    from tidewheel._spark.session import session

    started = session("local[2]", spark_settings)
    yield started
    started.stop()
