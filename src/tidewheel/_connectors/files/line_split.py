"""The common part of splits of files with one record per line: CSV, JSON and text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from tidewheel._connectors.bad_lines import BadLine, with_bad_lines
from tidewheel._connectors.files.lines import BLOCK, Block, Part
from tidewheel._connectors.files.partition_columns import PartitionColumns
from tidewheel._connectors.split import Place, Split

_CHUNK = 64
"""The number of lines that are tried together if a whole block does not parse."""

NOT_UTF8 = "the line is not UTF-8 text"


class Fault(NamedTuple):
    """Why a line is not a record."""

    reason: str
    column: str | None = None


class NotPlain(Exception):
    """Raised by a fast parser for a block that the exact parser has to read."""


@dataclass(frozen=True)
class LineSplit(Split):
    """Lines of a file. A fast parser reads whole blocks; an exact parser reads the lines of blocks that the fast one rejects."""

    part: Part
    columns: pa.Schema
    """The columns to read, without those that are folders."""
    partitions: PartitionColumns = field(default=PartitionColumns(), kw_only=True)
    block_bytes: int = field(default=BLOCK, kw_only=True)
    reading = "dear"

    @property
    def size(self) -> int:  # type: ignore[override]
        """How many bytes the part has."""
        return (self.part.file.size if self.part.end is None else self.part.end) - self.part.start

    def read(self) -> Iterator[pa.RecordBatch]:
        for block in self._blocks():
            for found in self._parsed(block):
                yield self.partitions.added(found)

    @property
    def by_line(self) -> bool:
        """Whether each record is on a line of its own."""
        return True

    @property
    def where(self) -> Place:
        return {"file": self.part.file.shown}

    def located(self) -> Iterator[tuple[pa.RecordBatch, list[Place]]]:
        if not self.by_line:
            yield from super().located()
            return
        for block in self._blocks():
            for line in block.in_chunks(1):
                place = {**self.where, "line": self._lines_before + line.line + 1}
                for found in self._parsed(line):
                    yield self.partitions.added(found), [place] * found.num_rows

    def _blocks(self) -> Iterator[Block]:
        return self.part.blocks(self.block_bytes)

    def _parsed(self, block: Block) -> Iterator[pa.RecordBatch]:
        try:
            yield self._fast(block)
            return
        except NotPlain:
            pass
        found = []
        for chunk in block.in_chunks(_CHUNK):
            try:
                found.append(self._fast(chunk))
            except NotPlain:
                found.append(self._exact(chunk))
        # Few large batches: each has a price further on.
        yield from _joined(found)

    @abstractmethod
    def _fast(self, block: Block) -> pa.RecordBatch:
        """Return the records of a block, all of whose lines are records; raise `NotPlain` if that is not certain."""

    @abstractmethod
    def _exact(self, block: Block) -> pa.RecordBatch:
        """Return the records of a block and its invalid lines, by the rules in docs/files.md."""

    @cached_property
    def _lines_before(self) -> int:
        return self.part.lines_before()

    def _batch(self, rows: Sequence[Sequence[Any]], faults: Sequence[tuple[int, bytes, Fault]]) -> pa.RecordBatch:
        """Return values by column, and lines that are no records, each with its number in the part, from 0 on."""
        arrays = [pa.array(row, kind.type) for row, kind in zip(rows, self.columns, strict=True)]
        return self._with_faults(pa.RecordBatch.from_arrays(arrays, schema=self.columns), faults)

    def _with_faults(self, records: pa.RecordBatch, faults: Sequence[tuple[int, bytes, Fault]]) -> pa.RecordBatch:
        lines = [
            BadLine(
                self.part.file.shown,
                self._lines_before + number + 1,
                fault.column,
                fault.reason,
                line.decode(errors="backslashreplace"),
            )
            for number, line, fault in faults
        ]
        return with_bad_lines(records, lines)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    run: list[pa.RecordBatch] = []
    for batch in (batch for batch in batches if batch.num_rows):
        if run and run[0].schema != batch.schema:
            yield pa.concat_batches(run)
            run = []
        run.append(batch)
    if run:
        yield pa.concat_batches(run)
