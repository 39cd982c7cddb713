"""Direct reading: tasks read a batch of a source themselves, in columns, and Spark's rows are never made.

Spark still decides what is in a batch. A source that can be read directly turns that into splits: small descriptions that
travel to the tasks. What it gives must equal, value by value, what Spark would give.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidewheel._connectors.split import Split
from tidewheel.errors import ConfigError

READER = "TIDEWHEEL_READER"
"""The variable of the environment that chooses the reader for all sources of all jobs of a process."""


class ReadBySpark(Exception):
    """Raised by a split that cannot promise to give the values that Spark would; the batch is then read by Spark."""


class ListedFile(NamedTuple):
    """A file of a batch, as Spark listed it: its URL, and when it was changed last, in milliseconds since 1970."""

    url: str
    changed_at: int


class SourceBatch(NamedTuple):
    """What Spark says is in a batch of one source: the offsets between which it is, and for a file source its files."""

    start: Any
    """None for the first batch of a source: Spark asks it where to begin, and records no answer. `begin` was called before."""
    end: Any
    files: Sequence[ListedFile] = ()


class DirectReader(ABC):
    """How the batches of one source are read directly."""

    def begin(self) -> None:  # noqa: B027
        """Take note of where the first batch begins. It is called before Spark asks the source, for a source without offsets."""

    @abstractmethod
    def splits(self, batch: SourceBatch, tasks: int) -> list[Split]:
        """Return the splits of a batch, enough to keep this many tasks busy; raise `ReadBySpark` to leave it to Spark."""


def as_chosen(why_spark: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return why Spark has to read each source, None where tasks can, after what the environment chooses.

    `TIDEWHEEL_READER=spark` leaves all to Spark. `TIDEWHEEL_READER=arrow` refuses a job with a source that only Spark can read.
    """
    match os.environ.get(READER, "auto"):
        case "auto" | "":
            return dict(why_spark)
        case "spark":
            return {name: why or f"{READER}=spark is set" for name, why in why_spark.items()}
        case "arrow":
            for name, why in why_spark.items():
                if why is not None:
                    raise ConfigError(f"{READER}=arrow is set, and only Spark can read source {name!r}: {why}")
            return dict(why_spark)
        case other:
            raise ConfigError(f"{READER} is auto, arrow or spark, not {other!r}")


def told_readers(why_spark: Mapping[str, str | None]) -> dict[str, str]:
    """Return in words who reads each source; `why_spark` says by source why Spark has to, or None.

    >>> told_readers({"clicks": None, "users": "it is a DataFrame"})
    {'clicks': 'arrow', 'users': 'spark, because it is a DataFrame'}
    """
    return {name: "arrow" if why is None else f"spark, because {why}" for name, why in why_spark.items()}
