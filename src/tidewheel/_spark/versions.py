"""The versions of Spark and Python that Tidewheel runs on."""

from __future__ import annotations

import sys

from tidewheel.errors import ConfigError

OLDEST, NEWEST = (4, 0), (4, 3)
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)


def check_version(version: str) -> None:
    """Refuse a Spark that is older than the oldest known or newer than the newest, by its version.

    >>> check_version("4.1.4")
    """
    numbers = version.split(".")[:2]
    known = len(numbers) == 2 and all(part.isdecimal() for part in numbers)
    if not known or not OLDEST <= (int(numbers[0]), int(numbers[1])) <= NEWEST:
        raise ConfigError(
            f"Tidewheel runs on Spark {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}; this one is pyspark {version}. "
            f"Install another, for example: pip install 'pyspark=={NEWEST[0]}.{NEWEST[1]}.*'"
        )


def check_python(version: tuple[int, ...] = sys.version_info[:2]) -> None:
    """Refuse a Python that is older than the oldest supported one or newer than the newest.

    >>> check_python((3, 13))
    """
    if not OLDEST_PYTHON <= version[:2] <= NEWEST_PYTHON:
        oldest, newest, found = (".".join(map(str, each[:2])) for each in (OLDEST_PYTHON, NEWEST_PYTHON, version))
        raise ConfigError(
            f"Tidewheel runs on Python {oldest} to {newest}; this one is {found}. Make an environment with another, for "
            f"example: uv venv --python {newest}"
        )
