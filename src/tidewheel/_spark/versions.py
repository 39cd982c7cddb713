"""Which versions of Spark Tidewheel runs on."""

from __future__ import annotations

from tidewheel.errors import ConfigError

OLDEST, NEWEST = (4, 0), (4, 3)


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
