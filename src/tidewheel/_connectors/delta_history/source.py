"""delta: the rows of one version of a Delta table."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidewheel._connectors.delta.table import TableLocation, client
from tidewheel._connectors.source import Source
from tidewheel._connectors.table_history import HistoryTable, TableFile, TableHistory, TableVersion
from tidewheel._core.urls import Url
from tidewheel._storage import absolute
from tidewheel.errors import ConfigError, ConnectorUnavailable, StorageError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.dataset import Fragment


def delta(url: str, *, order: str | None = None, max_files: int | None = None) -> Source:
    """Read the rows of a Delta table as it is when the job first starts, as the history of a `chain` for example.

    - `url`: a local folder, or an object store, such as `s3://bucket/table?region=…`, with the credentials in the environment.
    - `order`: a column. Files are read in the order of their lowest values of it: give the time column, so that the job's clock
      advances as time did. By default, files are read in the order in which they were written.
    - `max_files`: how many files a batch reads at most.

    The version is part of the first commit. Later versions are not read. Keep the files of this version until they are read:
    do not vacuum younger ones. Needs `tidewheel[delta]`.
    """
    client()
    return TableHistory(DeltaTableAt(order, absolute(url) if "://" not in url else url), "delta-history", max_files)


@dataclass(frozen=True)
class DeltaTableAt(HistoryTable):
    url: str

    def describe(self) -> str:
        return f"Delta table at {Url(self.url)}"

    def newest(self) -> int:
        return int(self._open().version())

    def load(self, version: int) -> TableVersion:
        location, table = TableLocation(self.url), self._open()
        deltalake = client()
        try:
            if table.version() != version:
                location.explained(self.describe(), functools.partial(table.load_as_version, version))
            return _DeltaVersion(self, table)
        except deltalake.exceptions.DeltaProtocolError as error:
            raise ConfigError(f"{self.describe()} cannot be read: {_line(error)}") from None

    def _open(self) -> DeltaTable:
        table = TableLocation(self.url).open(self.describe())
        if table is None:
            raise ConfigError(f"there is no {self.describe()}; create it, or correct the URL")
        return table


class _DeltaVersion(TableVersion):
    def __init__(self, at: DeltaTableAt, table: DeltaTable) -> None:
        self._about = at.describe()
        dataset, self.table = table.to_pyarrow_dataset(), str(table.metadata().id)
        self.columns = dataset.schema
        if at.order is not None and at.order not in self.columns.names:
            raise ConfigError(f"{at.describe()} has no column {at.order!r}; it has {', '.join(self.columns.names)}")
        self._fragments: dict[str, Fragment] = {fragment.path: fragment for fragment in dataset.get_fragments()}
        added = pa.table(table.get_add_actions(flatten=True))
        wanted = "modification_time" if at.order is None else f"min.{at.order}"
        if wanted not in added.column_names and f"partition.{at.order}" in added.column_names:
            wanted = f"partition.{at.order}"
        lows = added.column(wanted).to_pylist() if wanted in added.column_names else [None] * added.num_rows
        known = zip(added.column("path").to_pylist(), added.column("size_bytes").to_pylist(), lows, strict=True)
        self.files = at.ordered([TableFile(path, size, low) for path, size, low in known])

    def read(self, file: TableFile) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._fragments[file.path].to_batches(schema=self.columns)
        except FileNotFoundError:
            raise StorageError(
                f"{self._about}: its file {file.path} is gone, which the version that the job reads has: it was vacuumed. "
                "Put the file back, or reset the job"
            ) from None
        except OSError as error:
            raise ConnectorUnavailable(f"{self._about}: its file {file.path} cannot be read: {_line(error)}") from None


def _line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))[:400]
