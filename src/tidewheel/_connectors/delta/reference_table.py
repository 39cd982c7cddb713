"""Reference tables from Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel._connectors.delta.table import TableLocation
from tidewheel._connectors.tables.table import TableSource
from tidewheel._core.urls import Url
from tidewheel._storage import absolute
from tidewheel.errors import NotFound

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True)
class DeltaReference(TableSource):
    """All rows of the newest version of a Delta table."""

    url: str

    def load(self, spark: Any) -> pa.Table:
        return pa.table(self._open().to_pyarrow_table())

    def pieces(self, spark: Any) -> Iterator[pa.Table]:
        rows = self._open().to_pyarrow_dataset()
        yield rows.schema.empty_table()
        for batch in rows.to_batches():
            yield pa.Table.from_batches([batch])

    def fingerprint(self) -> str:
        table = self._open()
        # A table that was deleted and written again may have the same version.
        return f"{table.metadata().id} {table.version()}"

    def describe(self) -> str:
        return f"the Delta table {Url(self.url)}"

    def _open(self) -> DeltaTable:
        table = TableLocation(self.url).open(self.describe())
        if table is None:
            raise NotFound(f"there is no Delta table at {Url(self.url)}")
        return table


def delta(url: str) -> TableSource:
    """Read a reference table from a Delta table; needs `tidewheel[delta]`.

    A refresh reads the table again only if it has a new version.

    - `url`: the folder or URL of the table, such as `s3://bucket/customers`. Credentials are in the environment.

    >>> from tidewheel import Job, tables
    >>> Job("shop").table("customers", tables.delta("/data/customers"), key="id", refresh="1 minute")
    <Table 'customers' by id>
    """
    return DeltaReference(absolute(url))
