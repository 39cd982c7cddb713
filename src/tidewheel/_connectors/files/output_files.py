"""The files that a task has open: one for each group of rows and each set of columns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import pyarrow as pa

from tidewheel._connectors.files.formats import CheckedFile, EncodedRows, Format, RowWriter, row_writer
from tidewheel._connectors.files.sorting import RowOrder, SortedParquetWriter

_OPEN_FILES = 64

Group = TypeVar("Group")


class OutputFiles(Generic[Group]):
    """Write rows to files, a few of them open at a time. Groups are values with a hash, such as the names of folders."""

    def __init__(
        self,
        form: Format,
        compression: str,
        begin: Callable[[Group, pa.Schema], CheckedFile],
        finished: Callable[[Group, pa.Schema, RowWriter], None],
        *,
        file_bytes: float = float("inf"),
        order: RowOrder | None = None,
    ) -> None:
        """Take a function that begins a file, and one that is called with the writer of a file that is closed.

        A file that has `file_bytes` is closed, and another one is begun. With an order, each Parquet file is sorted.
        """
        self._form, self._compression, self._file_bytes = form, compression, file_bytes
        self._begin, self._finished, self._order = begin, finished, order
        self._open: OrderedDict[tuple[Group, pa.Schema], RowWriter] = OrderedDict()

    def write(self, group: Group, rows: EncodedRows) -> None:
        """Write rows of one group."""
        key = (group, rows.columns.schema)
        if key not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self._finish(next(iter(self._open)))
            self._open[key] = self._writer(self._begin(*key), key[1])
        self._open.move_to_end(key)
        self._open[key].write(rows)
        if self._open[key].size >= self._file_bytes:
            self._finish(key)

    def finish(self) -> None:
        """Close all files."""
        while self._open:
            self._finish(next(iter(self._open)))

    def _writer(self, file: CheckedFile, schema: pa.Schema) -> RowWriter:
        if self._order is not None:
            return SortedParquetWriter(file, schema, self._compression, self._order)
        return row_writer(self._form, file, schema, self._compression)

    def _finish(self, key: tuple[Group, pa.Schema]) -> None:
        writer = self._open.pop(key)
        try:
            writer.close()
        except OSError:
            writer.file.discard()
            raise
        self._finished(*key, writer)
