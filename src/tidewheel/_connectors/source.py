"""What a source is: a function from a Spark session to a streaming DataFrame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidewheel._values import ROW, Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Source(ABC):
    """Gives a streaming DataFrame. Every Spark source works; the helpers beside this file make the usual ones short."""

    shape: Shape = ROW
    """What its records look like where the program declares nothing."""

    @abstractmethod
    def load(self, spark: SparkSession) -> DataFrame:
        """Return the streaming DataFrame."""

    def declared(self, shape: Shape) -> Source:
        """Return the source for a program that declares this shape of its records; most have no use for it."""
        return self

    def describe(self) -> str:
        """Return a few words for messages."""
        return type(self).__name__.lower()

    def __getstate__(self) -> dict[str, Any]:
        """Stay in the driver: a source may hold a session or a million items, and tasks get its rows, not itself."""
        return {}


class FunctionSource(Source):
    """A function from a Spark session to a streaming DataFrame, as a source."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        """Take the function."""
        self.function = function

    def load(self, spark: SparkSession) -> DataFrame:
        """Call it."""
        return self.function(spark)  # type: ignore[no-any-return]


def as_source(source: Source | Callable[[Any], Any]) -> Source:
    """Return the source, or the function dressed as one."""
    return source if isinstance(source, Source) else FunctionSource(source)
