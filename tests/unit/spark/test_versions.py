"""A Spark or Python that is too old, too new or unknown is refused by its name."""

from __future__ import annotations

import pytest

from tidewheel._spark.versions import check_python, check_version
from tidewheel.errors import ConfigError


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.1.4", "4.3.0", "4.2.0.dev1"])
def test_a_version_that_is_supported(version):
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.4.0", "5.0.0", "nightly", ""])
def test_a_version_that_is_not_supported_is_refused_by_its_name(version):
    with pytest.raises(ConfigError, match=f"Spark 4.0 to 4.3; this one is pyspark {version}"):
        check_version(version)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_a_python_that_is_supported(version):
    check_python(version)


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_a_python_that_is_not_supported_is_refused_with_the_way_on(version):
    with pytest.raises(
        ConfigError, match=rf"Python 3.11 to 3.14; this one is 3.{version[1]}. Make an environment with another"
    ):
        check_python(version)
