"""iceberg: the rows of one snapshot of an Iceberg table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel._connectors.iceberg.catalog import TableName, client
from tidewheel._connectors.source import Source
from tidewheel._connectors.table_history import HistoryTable, TableFile, TableHistory, TableVersion
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table


def iceberg(
    table: str,
    *,
    catalog: str | Mapping[str, str],
    branch: str = "main",
    order: str | None = None,
    max_files: int | None = None,
) -> Source:
    """Read the rows of an Iceberg table as it is when the job first starts, as the history of a `chain` for example.

    - `table`: the namespace and the name, such as `"shop.orders"`.
    - `catalog`: the properties of the catalog, such as `{"type": "rest", "uri": "http://localhost:8181"}`, or the name of a
      catalog in `.pyiceberg.yaml`.
    - `branch`: the branch whose newest snapshot is read.
    - `order`: a column. Files are read in the order of their lowest values of it: give the time column, so that the job's clock
      advances as time did. By default, files are read in the order of their names.
    - `max_files`: how many files a batch reads at most.

    The snapshot is part of the first commit. Later snapshots are not read. Keep this snapshot until it is read: do not expire
    it. Needs `tidewheel[iceberg]`.
    """
    client()
    return TableHistory(IcebergTableAt(order, TableName.of(table, catalog), branch), "iceberg-history", max_files)


@dataclass(frozen=True)
class IcebergTableAt(HistoryTable):
    name: TableName
    branch: str

    def describe(self) -> str:
        return f"Iceberg table {self.name}" + (f", branch {self.branch}" if self.branch != "main" else "")

    def newest(self) -> int:
        snapshot = self._open().snapshot_by_name(self.branch)
        if snapshot is None:
            raise ConfigError(f"there is no snapshot of {self.describe()}; write to it first, or correct branch=")
        return int(snapshot.snapshot_id)

    def load(self, version: int) -> TableVersion:
        table = self._open()
        if table.snapshot_by_id(version) is None:
            raise ConfigError(
                f"{self.describe()} no longer has the snapshot {version}, which the job reads: it was expired. Restore the "
                "table, or reset the job"
            )
        return self.name.explained(self.describe(), lambda: _IcebergVersion(self, table, version))

    def _open(self) -> Table:
        table = self.name.load(self.describe())
        if table is None:
            raise ConfigError(f"there is no {self.describe()}; create it, or correct the name")
        return table


class _IcebergVersion(TableVersion):
    def __init__(self, at: IcebergTableAt, table: Table, snapshot: int) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._at, self._table, self._scan = at, table, table.scan(snapshot_id=snapshot)
        self.table = str(table.metadata.table_uuid)
        self._schema = self._scan.projection()
        self.columns = schema_to_pyarrow(self._schema, include_field_ids=False)
        if at.order is not None and at.order not in self.columns.names:
            raise ConfigError(f"{at.describe()} has no column {at.order!r}; it has {', '.join(self.columns.names)}")
        tasks = list(self._scan.plan_files())
        self._tasks: dict[str, FileScanTask] = {task.file.file_path: task for task in tasks}
        self.files = at.ordered(
            [TableFile(task.file.file_path, task.file.file_size_in_bytes, self._low(task.file)) for task in tasks]
        )

    def _low(self, file: DataFile) -> Any:
        """Return the lowest value of the column `order`, or 0 if files are ordered by their names."""
        from pyiceberg.conversions import from_bytes
        from pyiceberg.types import PrimitiveType

        if self._at.order is None:
            return 0
        field = self._schema.find_field(self._at.order)
        low = (file.lower_bounds or {}).get(field.field_id)
        if low is None or not isinstance(field.field_type, PrimitiveType):
            return None
        return from_bytes(field.field_type, low)

    def read(self, file: TableFile) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan = ArrowScan(self._table.metadata, self._table.io, self._schema, AlwaysTrue())
        task = self._tasks[file.path]
        yield from self._at.name.explained(self._at.describe(), lambda: list(scan.to_record_batches([task])))
