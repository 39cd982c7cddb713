"""One Spark for all tests that need one: starting it takes seconds, and its first batches more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from java_archive import java_options
from pyspark.sql import SparkSession

from tidewheel.spark.session import session

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": java_options(),
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    started = session("local[2]", SETTINGS)
    yield started
    started.stop()
