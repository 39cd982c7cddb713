"""A Spark that is too old, too new or unknown is refused by name."""

from __future__ import annotations

import pytest

from tidewheel._spark.versions import check_version
from tidewheel.errors import ConfigError


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.1.4", "4.3.0", "4.2.0.dev1"])
def test_a_version_that_is_supported(version):
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.4.0", "5.0.0", "nightly", ""])
def test_a_version_that_is_not_supported_is_refused_by_its_name(version):
    with pytest.raises(ConfigError, match=f"Spark 4.0 to 4.3; this one is pyspark {version}"):
        check_version(version)
