"""What `tidewheel` offers is there, and is imported only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidewheel


def test_every_public_name_is_there():
    for name in tidewheel.__all__:
        assert getattr(tidewheel, name).__name__.rpartition(".")[2] == name


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'jobs'"):
        tidewheel.jobs  # noqa: B018


def test_importing_it_imports_neither_arrow_nor_spark_and_its_modules_are_there_all_the_same():
    program = (
        "import sys, tidewheel\n"
        "assert not {'pyspark', 'pyarrow', 'numpy', 'msgspec'} & set(sys.modules)\n"
        "tidewheel.sinks.files, tidewheel.sources.files, tidewheel.cells.open, tidewheel.testing\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
