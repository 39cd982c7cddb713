"""Finding a Java that Spark can run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel._spark import java
from tidewheel._spark.java import find_java, java_version
from tidewheel.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_202"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25.0.1-ea"', 25),
        ("command not found", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_the_output_of_java(text, version):
    assert java_version(text) == version


def a_java(folder: Path, says: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return folder


def test_a_new_enough_java_will_do(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path, 'openjdk version "17.0.1"')))
    find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    find_java()


@pytest.fixture
def not_packaged(monkeypatch):
    monkeypatch.setattr(java, "_PACKAGE", "a_package_that_is_not_installed")


@pytest.mark.usefixtures("not_packaged")
def test_without_java_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"there is no `java` on the PATH; install one with `pip install"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"JAVA_HOME is .*gone, and .*gone/bin/java is not there"):
        find_java()


def test_an_old_java_is_refused_with_its_version(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "old", 'java version "1.8.0_202"')))
    with pytest.raises(ConfigError, match=r"Spark needs Java 17 or newer, and .*java is Java 8"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "odd", "hello")))
    with pytest.raises(ConfigError, match="is one that does not print its version"):
        find_java()


def test_a_java_that_cannot_be_run_is_a_clear_error_too(tmp_path, monkeypatch):
    home = a_java(tmp_path, "x")
    (home / "bin" / "java").chmod(0o644)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(ConfigError, match="Spark needs Java"):
        find_java()
