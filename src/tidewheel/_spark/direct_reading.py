"""Which sources of a job the tasks read themselves, and the splits of a batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from tidewheel._connectors.direct import DirectReader, ListedFile, dealt
from tidewheel._connectors.schema import arrow_schema
from tidewheel._engine.plan import Plan
from tidewheel._engine.task import SourceSplit
from tidewheel._operators.stateless.source import SourceOperator


class DirectReading:
    """The direct readers of all sources of a job. A batch is read directly or by Spark as a whole."""

    def __init__(self, plan: Plan, frames: Sequence[DataFrame]) -> None:
        """Ask each source of the plan whether tasks can read these columns of it."""
        self.readers: dict[str, DirectReader] = {}
        self.why_not: str | None = None
        """Why the job's batches are read by Spark; None if they are not."""
        for node, frame in zip(plan.sources(), frames, strict=True):
            assert isinstance(node.operator, SourceOperator)
            zone = frame.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
            reader = node.operator.source.direct(arrow_schema(frame.schema, zone))
            if isinstance(reader, str):
                self.why_not = f"source {node.name!r}: {reader}"
                return
            self.readers[node.name] = reader

    def splits(self, lines: Sequence[str], logs: Mapping[str, int], tasks: int) -> list[SourceSplit]:
        """Return the splits of a batch, enough to keep this many tasks busy.

        `lines` are the entries that Spark's logs of its file sources have for the batch, each behind the number of its log;
        `logs` are these numbers by source.
        """
        files: dict[int, list[ListedFile]] = {}
        for line in lines:
            log, _, entry = line.partition("\t")
            files.setdefault(int(log), []).append(_listed(entry))
        return [
            (number, split)
            for number, (name, reader) in enumerate(self.readers.items())
            for split in reader.splits(files.get(logs[name], ()), tasks)
        ]


def hands_of(splits: Sequence[SourceSplit], tasks: int) -> list[list[SourceSplit]]:
    """Return the splits dealt to at most this many tasks; a batch without any has one task all the same."""
    hands = dealt([split.size for _, split in splits], tasks)
    return [[splits[position] for position in hand] for hand in hands] or [[]]


def _listed(line: str) -> ListedFile:
    entry = json.loads(line)
    return ListedFile(entry["path"], entry["timestamp"])
