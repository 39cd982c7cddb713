"""One Spark for all tests that need one: the fixture that users get from the pytest plugin, with a JVM that starts sooner."""

from __future__ import annotations

import pytest

from java_archive import java_options
from tidewheel._testing.plugin import SETTINGS, spark

__all__ = ["spark", "spark_settings"]


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    return {**SETTINGS, "spark.driver.extraJavaOptions": java_options()}
