"""The common part of splits of columnar files: only the columns that the program uses are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import pyarrow as pa

from tidewheel._connectors.files.fitting import Fitting
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.partition_columns import PartitionColumns
from tidewheel._connectors.split import Place, Split

ROWS = 250_000
"""Records of one Arrow batch: enough to share the cost of a batch, and still small in memory."""


@dataclass(frozen=True)
class ColumnarSplit(Split, ABC):
    """A file that is stored by column, or the part of it from one unit (row group, stripe, batch) up to another."""

    file: InputFile
    columns: pa.Schema
    units: tuple[int, int] | None = None
    """None: all units of the file."""
    size: int = 0
    partitions: PartitionColumns = field(default=PartitionColumns(), kw_only=True)
    only: tuple[str, ...] | None = field(default=None, kw_only=True)
    """The columns to read; None: all. The types of all columns are checked, so that both cases refuse the same files."""
    encoded: str | None = field(default=None, kw_only=True)
    """A text column that may be dictionary-encoded."""
    reading: ClassVar[Literal["once", "dear", "cheap"]] = "cheap"

    def narrowed(self, names: Collection[str]) -> Split:
        if self.partitions.columns:
            return self
        return replace(self, only=tuple(name for name in self.columns.names if name in names))

    @property
    def where(self) -> Place:
        return {"file": self.file.shown} if self.units is None else {"file": self.file.shown, "part": self.units}

    def read(self) -> Iterator[pa.RecordBatch]:
        for fitting, batch in self._batches():
            for start in range(0, batch.num_rows, ROWS):
                yield self.partitions.added(fitting.fitted(batch.slice(start, ROWS), self.only, self.encoded))

    @abstractmethod
    def _batches(self) -> Iterator[tuple[Fitting, pa.RecordBatch]]:
        """Yield the records of the units with the columns that are wanted, in the types of the file."""

    @classmethod
    @abstractmethod
    def count(cls, file: InputFile) -> int:
        """Return how many units a file has."""

    @classmethod
    @abstractmethod
    def schema_of(cls, file: InputFile) -> pa.Schema:
        """Return the columns of a file, with the types that programs get."""
