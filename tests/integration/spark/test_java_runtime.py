"""The Java runtime of Spark's JVM."""

from __future__ import annotations

import os
import subprocess

from tidewheel._spark.java import java_for_spark


def test_the_packaged_java_serves_where_the_machine_has_none(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with java_for_spark() as version:
        assert version >= 17
        monkeypatch.setenv("PATH", os.defpath)
        # Spark always passes this option, and the packaged runtime lacks the module.
        command = [f"{os.environ['JAVA_HOME']}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert "JAVA_HOME" not in os.environ


def test_a_java_does_not_warn_of_the_module_that_spark_asks_for():
    with java_for_spark():
        command = [f"{os.environ['JAVA_HOME']}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
        said = subprocess.run(command, capture_output=True, check=True).stderr
    assert b"incubator" not in said
