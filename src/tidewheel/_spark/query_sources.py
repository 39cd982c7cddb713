"""The sources of a job as the one streaming query that Spark runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidewheel._connectors.spark.ticks import TickReader, ticks
from tidewheel._connectors.stream_reader import DirectStream
from tidewheel._engine.plan import Plan
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._spark.direct_reading import DirectReading
from tidewheel._spark.failures import said
from tidewheel._spark.program import pruned, source_frame, with_ticks
from tidewheel._spark.source_lines import CLOCK, SourceLine, source_lines
from tidewheel.errors import ConfigError, TidewheelError


@dataclass(frozen=True)
class QuerySources:
    """The frame of all sources, what the lines of its offsets are, and who reads the records: tasks themselves, or Spark."""

    frame: DataFrame
    bare: DataFrame
    """The same sources, and none of their rows: Spark plans next to nothing for a batch that tasks read themselves."""
    lines: tuple[SourceLine, ...]
    direct: DirectReading
    clock: DirectStream | None
    """The ticks, if they are one more source."""

    def streams(self) -> list[DirectStream]:
        """Return the stream of each line; refuse sources that do not say in Python where they end, or that Spark reads."""
        streams = [reader for reader in self.direct.readers.values() if isinstance(reader, DirectStream)]
        listed = [name for name, reader in self.direct.readers.items() if not isinstance(reader, DirectStream)]
        why_not = self.direct.why_not or (f"source {listed[0]!r} is asked for what is new by Spark" if listed else None)
        if why_not is not None:
            raise ConfigError(
                "the trigger 'direct' is for Kafka, NATS, MQTT, inboxes, iterables and logs of your own, which tasks read and "
                f"the run asks itself; {why_not}. Leave the trigger out, or give a time such as '1 second'"
            )
        return [*streams, *([] if self.clock is None else [self.clock])]


def query_sources(
    plan: Plan, spark: SparkSession, tick: float | None, recorded_kinds: Mapping[str, str]
) -> QuerySources:
    """Load the sources of a plan, those with a recorded kind as that kind; with a `tick`, in seconds, the clock is one more."""
    frames = []
    for node in plan.sources():
        assert isinstance(node.operator, SourceOperator)
        try:
            if node.name in recorded_kinds:
                node.operator.source.continues(recorded_kinds[node.name])
            frames.append(node.operator.source.load(spark))
        except TidewheelError:
            raise
        except Exception as error:
            raise ConfigError(
                f"source {node.name!r} ({node.operator.source.describe()}) cannot be read: {said(error)}"
            ) from error
    chosen = pruned(plan, frames)
    frame = source_frame(chosen)
    bare = frame.where(F.lit(False))
    parts = list(zip((node.name for node in plan.sources()), frames, strict=True))
    clock = None
    if tick is not None:
        rows = ticks(tick).load(spark)
        frame, bare = with_ticks(frame, rows), with_ticks(bare, rows)
        parts.append((CLOCK, rows))
        clock = DirectStream(TickReader(tick), pa.schema([]))
        clock.begin()
    return QuerySources(frame, bare, source_lines(parts, frame), DirectReading(plan, chosen), clock)
