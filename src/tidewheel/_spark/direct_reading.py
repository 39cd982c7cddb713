"""Which sources of a job the tasks read themselves, and the splits of a batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.direct import DirectReader, ListedFile, SourceBatch, as_chosen, told_readers
from tidewheel._connectors.schema import arrow_schema
from tidewheel._connectors.split import dealt
from tidewheel._engine.plan import Plan, columns_read, known_columns
from tidewheel._engine.task import SourceSplit
from tidewheel._operators.stateless.source import SourceOperator


class DirectReading:
    """The direct readers of all sources of a job. A batch is read directly or by Spark as a whole."""

    def __init__(self, plan: Plan, frames: Sequence[DataFrame]) -> None:
        """Ask each source of the plan whether tasks can read these columns of it."""
        self.readers: dict[str, DirectReader] = {}
        schemas: dict[int, pa.Schema] = {}
        why: dict[str, str | None] = {}
        for node, frame in zip(plan.sources(), frames, strict=True):
            assert isinstance(node.operator, SourceOperator)
            zone = frame.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
            schemas[node.id] = arrow_schema(frame.schema, zone)
            reader = node.operator.source.direct(schemas[node.id])
            why[node.name] = reader if isinstance(reader, str) else None
            if not isinstance(reader, str):
                self.readers[node.name] = reader
        why = as_chosen(why)
        self.why_not = next((f"source {name!r}: {each}" for name, each in why.items() if each is not None), None)
        """Why the job's batches are read by Spark; None if they are not."""
        self._read_by_code = _read_by_code(plan, schemas)
        self.told = told_readers(why)
        """In words who reads each source, by its name."""

    def begin(self, offsets: Mapping[str, Position]) -> None:
        """Let the sources that have no offset yet take note of where they begin."""
        for name, reader in self.readers.items():
            if _offset(offsets.get(name)) is None:
                reader.begin()

    def splits(
        self,
        start: Mapping[str, Position],
        end: Mapping[str, Position],
        lines: Sequence[str],
        logs: Mapping[str, int],
        tasks: int,
    ) -> list[SourceSplit]:
        """Return the splits of a batch, enough to keep this many tasks busy.

        `start` and `end` are the offsets that Spark recorded, by source. `lines` are the entries that Spark's logs of its file
        sources have for the batch, each behind the number of its log; `logs` are these numbers by source.
        """
        files: dict[int, list[ListedFile]] = {}
        for line in lines:
            log, _, entry = line.partition("\t")
            files.setdefault(int(log), []).append(_listed(entry))
        splits: list[SourceSplit] = []
        for number, (name, reader) in enumerate(self.readers.items()):
            batch = SourceBatch(_offset(start.get(name)), _offset(end.get(name)), files.get(logs[name], ()))
            # A source that has nothing yet has no offset.
            if batch.end is not None:
                splits += [(number, split) for split in reader.splits(batch, tasks)]
        return splits

    def narrowed(self, splits: Sequence[SourceSplit]) -> list[SourceSplit] | None:
        """Return splits that give only what the code of the program's functions reads; None if these are not other splits."""
        names = self._read_by_code
        found = [(number, split.narrowed(names[number]) if number in names else split) for number, split in splits]
        return None if all(new is old for (_, new), (_, old) in zip(found, splits, strict=True)) else found


def _read_by_code(plan: Plan, schemas: Mapping[int, pa.Schema]) -> dict[int, list[str]]:
    """Return the columns that the program reads of the sources of which it does not read all, by their number."""
    found: dict[int, list[str]] = {}
    known = known_columns(plan, schemas)
    for number, node in enumerate(plan.sources()):
        names = columns_read(plan, node, known, by_code=True)
        # A name that is no column is for the function to fail on.
        if names is not None and set(names) < set(schemas[node.id].names):
            found[number] = names
    return found


def hands_of(splits: Sequence[SourceSplit], tasks: int) -> list[list[SourceSplit]]:
    """Return the splits dealt to at most this many tasks; a batch without any has one task all the same."""
    hands = dealt([split.size for _, split in splits], tasks)
    return [[splits[position] for position in hand] for hand in hands] or [[]]


def _offset(text: Position | None) -> Any:
    return None if text is None or text == "-" else json.loads(str(text))


def _listed(line: str) -> ListedFile:
    entry = json.loads(line)
    return ListedFile(entry["path"], entry["timestamp"])
