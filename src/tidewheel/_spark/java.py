"""Is there a Java that Spark can run on?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from tidewheel.errors import ConfigError

OLDEST = 17
_INSTALL = (
    "install one with `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu), `dnf install java-17-openjdk-headless` "
    "(Fedora) or `brew install openjdk@17` (macOS), or point JAVA_HOME at one"
)


def check_java() -> int:
    """Return the version of Java; raise a `ConfigError` that says what to install if there is none, or one too old for Spark."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
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
        actual = "one that does not say its version" if version is None else f"Java {version}"
        raise ConfigError(f"Spark needs Java {OLDEST} or newer, and {java} is {actual}; {_INSTALL}")
    return version


def java_version(text: str) -> int | None:
    """Return the major version that `java -version` printed, or None.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_202"')
    (17, 8)
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def require_java() -> None:
    """Exit with the message of `check_java`, for callers that are no part of a run."""
    try:
        check_java()
    except ConfigError as error:
        raise SystemExit(str(error)) from None
