"""Read one version of a lake table, file by file: the history before a topic.

The first start chooses the version, and the first commit records it. So a batch that is repeated, or a start after years, reads
the same files, whatever other writers and compactions have done to the table since.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._connectors.files.arrow_types import spark_type
from tidewheel._connectors.source import Source, SourceReader, Unread
from tidewheel._connectors.split import Place, Split, fitted
from tidewheel.errors import ConfigError, StateError

_KNOWN_S = 300.0
"""How long a loaded version is used: the credentials of a catalog expire."""


class TableFile(NamedTuple):
    """A data file of a version."""

    path: str
    """Unique in the version, for messages and for the order of files that begin with the same value."""
    size: int
    low: Any = None
    """The sort key of the files: the lowest value of the column `order`, or else the time when the file was written."""


class TableVersion(ABC):
    """A version of a table, loaded in this process."""

    table: str
    """The id of the table, which another table at the same place does not have."""
    columns: pa.Schema
    files: Sequence[TableFile]
    """In the order in which they are read."""

    @abstractmethod
    def read(self, file: TableFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file as of this version: without deleted rows, and with all columns."""


@dataclass(frozen=True)
class HistoryTable(ABC):
    """A table that is read as history. It travels to the tasks."""

    order: str | None
    """The column by whose lowest value files are ordered."""

    @abstractmethod
    def newest(self) -> int:
        """Return the newest version. Raise a `ConfigError` if there is no table."""

    @abstractmethod
    def load(self, version: int) -> TableVersion:
        """Load a version. Raise a `ConfigError` if it was deleted, or has unsupported features."""

    @abstractmethod
    def describe(self) -> str:
        """Return the table for messages, without credentials."""

    def at(self, version: int) -> TableVersion:
        """Return a version, from this process's cache if possible."""
        since, known = _loaded.get((self, version), (0.0, None))
        if known is None or time.monotonic() - since > _KNOWN_S:
            known = self.load(version)
            for other in [key for key in list(_loaded) if key[0] == self]:
                _loaded.pop(other, None)  # Another thread asks for the backlog.
            _loaded[self, version] = (time.monotonic(), known)
        return known

    def ordered(self, files: Sequence[TableFile]) -> list[TableFile]:
        """Return files in the order in which they are read; raise a `ConfigError` if it is unknown for one of them."""
        unknown = next((file for file in files if file.low is None), None)
        if self.order is not None and unknown is not None:
            raise ConfigError(
                f"{self.describe()}: the file {unknown.path} has no statistics of the column {self.order!r}, so its place in "
                "the order is unknown; remove order=, or rewrite the file with statistics"
            )
        return sorted(files, key=lambda file: (file.low, file.path))


_loaded: dict[tuple[HistoryTable, int], tuple[float, TableVersion]] = {}


class TableHistory(Source):
    """The rows of one version of a table."""

    def __init__(self, table: HistoryTable, kind: str, max_files: int | None) -> None:
        if max_files is not None and (not isinstance(max_files, int) or max_files < 1):
            raise ConfigError(f"max_files of {table.describe()} must be at least 1, not {max_files!r}")
        self.table, self.max_files = table, max_files
        self.kind = kind  # type: ignore[misc]  # one class serves both kinds of tables

    def open(self) -> SourceReader:
        return TableReader(self.table, self.max_files)

    def check(self) -> None:
        self.table.at(self.table.newest())

    def check_program(self) -> None:
        """Do nothing: the table may be created later, or be out of reach of this machine."""

    def describe(self) -> str:
        return self.table.describe()


class TableReader(SourceReader):
    """Reads one version. A position is the version and how many of its files are read."""

    def __init__(self, table: HistoryTable, max_files: int | None) -> None:
        self._table, self._max_files = table, max_files
        self._newest = table.newest()
        self.schema = _readable(table.at(self._newest).columns)

    def start(self) -> Position:
        return self._position(self._newest, 0)

    def _position(self, version: int, files: int) -> Position:
        return {"table": self._table.at(version).table, "version": version, "order": self._table.order, "files": files}

    def end(self, start: Position) -> Position:
        version, first = _place(start)
        files = self._table.at(version).files
        most = len(files) if self._max_files is None else min(len(files), first + self._max_files)
        end, size = first, 0
        while end < most and (self.limit is None or end == first or size + files[end].size <= self.limit):
            size += files[end].size
            end += 1
        return start if end == first else self._position(version, end)

    def check(self, position: Position, last: SeenFile | None) -> None:
        """Refuse a position whose number counts other files, or the same files in another order."""
        version, _ = _place(position)
        now, where = self._position(version, 0), self._table.describe()
        assert isinstance(position, dict)
        assert isinstance(now, dict)
        if position.get("table") != now["table"]:
            raise StateError(
                f"it has begun to read another table than the present {where}; give the source the former table, or another name"
            )
        if position.get("order") != now["order"]:
            raise StateError(
                f"it has begun to read the {where} with order={position.get('order')!r}, and now has order={now['order']!r}; "
                "only a new job can have another order"
            )

    def amount(self, start: Position, end: Position) -> int:
        return sum(file.size for file in self._between(start, end))

    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        version, first = _place(start)
        return [
            TableSplit(self._table, version, number, self.schema, file.size, file.path)
            for number, file in enumerate(self._between(start, end), first)
        ]

    def unread(self, position: Position) -> Mapping[str, Unread] | None:
        version, first = _place(position)
        end = len(self._table.at(version).files)
        return {"": Unread(0, first, end, files=end - first)} if end > first else {}

    def _between(self, start: Position, end: Position) -> Sequence[TableFile]:
        (version, first), (_, last) = _place(start), _place(end)
        return self._table.at(version).files[first:last]


@dataclass(frozen=True)
class TableSplit(Split):
    """One file of a version."""

    table: HistoryTable
    version: int
    number: int
    columns: pa.Schema
    size: int
    path: str
    reading: ClassVar[Literal["once", "dear", "cheap"]] = "dear"

    @property
    def where(self) -> Place:
        return {"table": self.table.describe(), "version": self.version, "file": self.path}

    def read(self) -> Iterator[pa.RecordBatch]:
        known = self.table.at(self.version)
        for batch in known.read(known.files[self.number]):
            # After a restart, the columns are those of the newest version, which may have more.
            for field in self.columns:
                if field.name not in batch.schema.names:
                    batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
            yield fitted(batch, self.columns)

    def narrowed(self, names: Collection[str]) -> Split:
        return replace(self, columns=pa.schema([field for field in self.columns if field.name in names]))


def _place(position: Position) -> tuple[int, int]:
    if not isinstance(position, dict) or not {"version", "files"} <= position.keys():
        raise StateError(f"its position is not the version of a table and a number of files, but {position!r}")
    return int(position["version"]), int(position["files"])


def _readable(columns: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, spark_type(field.type)) for field in columns])
