"""The adaptor for streaming DataFrames that users bring: a streaming query of Spark as a source's reader.

The query runs in the background. Spark calls `foreachBatch` with each of its batches, and that call waits until the run has
committed the batch: only then does Spark begin the next batch. So the query never reads ahead, and its position is the
position of the source, recorded with the batch as for any other source.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._connectors.schema import arrow_schema
from tidewheel._connectors.source import Source, SourceReader
from tidewheel._connectors.spark.frame_position import FramePosition
from tidewheel._connectors.split import Split
from tidewheel._spark import jvm
from tidewheel._spark.checkpoint_folder import CheckpointFolder, streams_of
from tidewheel._spark.failures import summary_line
from tidewheel.errors import ConfigError, TidewheelError

_POLL_SECONDS = 0.05
_STARTING = "Initializing sources"
"""Spark's status message for a query that has no sources yet."""
_WAITING = "Waiting for data to arrive"
"""Spark's status message for a query that has read everything."""
_NOTHING: Position = {}
"""The position of a DataFrame before the first batch."""


class FrameReader(SourceReader):
    """Reads a streaming DataFrame by a streaming query. Its batches are frames, not splits."""

    fixed_start = True

    def __init__(self, spark: SparkSession, name: str, source: Source, folder: Path) -> None:
        """Load the DataFrame; nothing is read yet. `folder` is for the query's checkpoint."""
        self._name = name
        self._frame = _loaded(spark, name, source)
        self._folder = CheckpointFolder(folder, name, streams_of(self._frame))
        zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
        try:
            self.schema = arrow_schema(self._frame.schema, zone)
        except PySparkException as error:
            raise ConfigError(
                f"source {name!r}: a column has a type that Arrow lacks: {summary_line(error)}"
            ) from error
        self._recalled: list[SeenFile] = []
        self._ends = False
        self._query: StreamingQuery | None = None
        self._changed = threading.Condition()
        self._offered: tuple[int, DataFrame] | None = None
        self._captured: tuple[FramePosition, list[SeenFile]] | None = None
        self._closed = False

    def project(self, names: Sequence[str]) -> None:
        super().project(names)
        self._frame = self._frame.select(*[F.col(f"`{name}`") for name in names])

    def recall(self, seen: Iterable[SeenFile]) -> None:
        self._recalled = list(seen)

    def start(self) -> Position:
        return _NOTHING

    def freeze(self) -> None:
        self._ends = True

    def end(self, start: Position) -> Position:
        """Return the end of the batch that Spark offers, or `start` if it offers none.

        A run that ends by itself waits until Spark offers a batch or has ended its query: it has then read all there is.
        """
        first = self._query is None
        query = self._query = self._query or self._started(start)
        with self._changed:
            # The first look waits until Spark has looked, so that existing data belongs to the first batch.
            while self._offered is None and query.isActive and (self._ends or (first and not _is_waiting(query))):
                self._changed.wait(_POLL_SECONDS)
            if self._offered is None:
                if not query.isActive:
                    self._check(query)
                return start
            batch = self._offered[0]
        if self._captured is None or self._captured[0].batch != batch:
            position = self._folder.captured(batch)
            self._captured = (position, self._folder.seen(position))
        return self._captured[0].recorded()

    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        return []

    def frame(self) -> DataFrame:
        """Return the frame of the batch that `end` found."""
        assert self._offered is not None, "there is a batch where the positions differ"
        return self._offered[1]

    def seen(self, start: Position, end: Position) -> list[SeenFile]:
        return self._captured[1] if self._captured is not None and start != end else []

    def committed(self, position: Position) -> None:
        with self._changed:
            offered = None if self._captured is None else self._captured[0].recorded()
            if self._offered is not None and position == offered:
                self._offered = self._captured = None
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            # Spark waits for the call of `foreachBatch` to return before a query stops.
            self._closed = True
            self._changed.notify_all()
        # A JVM that has ended has nothing to stop.
        with contextlib.suppress(Py4JError, *jvm.CONNECTION_ERRORS):
            if self._query is not None:
                while self._query.isActive and self._query.status["message"] == _STARTING:
                    # A query that is stopped while a Python source of it starts leaves that process to fail, loudly.
                    self._query.awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]  # it takes parts of a second
                self._query.stop()
        self._folder.remove()

    def _started(self, start: Position) -> StreamingQuery:
        self._folder.rebuild(None if start == _NOTHING else FramePosition.of(start), self._recalled)
        self._recalled = []
        writer = self._frame.writeStream.foreachBatch(self._offer)
        trigger = writer.trigger(availableNow=True) if self._ends else writer.trigger(processingTime="0 seconds")
        # Not `as_uri`, which writes some characters as %3D and the like: Spark would take that for the name.
        return trigger.option("checkpointLocation", f"file://{self._folder.path}").start()

    def _offer(self, frame: DataFrame, batch: int) -> None:
        """Offer a batch to the run, and wait until it is committed. Spark calls this."""
        with self._changed:
            if self._closed:
                return
            self._offered = (batch, frame)
            self._changed.notify_all()
            while self._offered is not None and not self._closed:
                self._changed.wait()

    def _check(self, query: StreamingQuery) -> None:
        """Raise the error that ended a query."""
        error = query.exception()
        if error is not None:
            raise error
        if not self._ends:
            raise TidewheelError(f"source {self._name!r}: Spark ended its streaming query without an error")


def _is_waiting(query: StreamingQuery) -> bool:
    return bool(query.status["message"] == _WAITING)


def _loaded(spark: SparkSession, name: str, source: Source) -> DataFrame:
    try:
        frame = source.load(spark)
    except TidewheelError:
        raise
    except Exception as error:
        raise ConfigError(f"source {name!r} ({source.describe()}) cannot be read: {summary_line(error)}") from error
    if not frame.isStreaming:
        raise ConfigError(f"source {name!r}: it gave a DataFrame that is not streaming; use spark.readStream")
    return frame
