"""Reference tables from an SQL query."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._connectors.tables.table import TableSource
from tidewheel._core.urls import Url
from tidewheel.errors import ConfigError


@dataclass(frozen=True)
class SqlTable(TableSource):
    """The rows of a query."""

    query: str
    connect: Callable[[], Any]
    """Returns a connection of the Python database interface (PEP 249)."""
    place: str

    def load(self, spark: Any) -> pa.Table:
        with contextlib.closing(self.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(self.query)
            if cursor.description is None:
                raise ConfigError("the query returns no rows; write a SELECT")
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        arrays = []
        for name, values in zip(names, columns, strict=True):
            try:
                arrays.append(pa.array(values))
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise ConfigError(
                    f"the values of the column {name!r} do not fit into a column: {error}. Cast it in the query"
                ) from error
        return pa.Table.from_arrays(arrays, names)

    def describe(self) -> str:
        return f"a query at {self.place}" if self.place else "a query"


def sql(query: str, connection: str | Callable[[], Any]) -> TableSource:
    """Read a reference table with an SQL query.

    All rows are read into the memory of the driver. The types of the columns follow from the values; cast in the query
    what should have another type.

    - `query`: a SELECT.
    - `connection`: a PostgreSQL database, as for `sinks.postgres`: `postgresql://host/db` or `host=… dbname=…`, which
      needs `tidewheel[postgres]`; or a function that returns a connection of any Python database driver (PEP 249). It
      is called at each refresh, and the connection is closed afterwards.

    >>> import sqlite3
    >>> from tidewheel import Job, tables
    >>> prices = tables.sql("SELECT sku, cents FROM prices", lambda: sqlite3.connect("shop.db"))
    >>> Job("shop").table("prices", prices, key="sku", refresh="10 minutes")
    <Table 'prices' by sku>
    """
    if callable(connection):
        return SqlTable(query, connection, "")
    is_url = isinstance(connection, str) and connection.startswith(("postgresql://", "postgres://"))
    if not is_url and not (isinstance(connection, str) and "=" in connection and "://" not in connection):
        raise ConfigError(
            "the connection of a query must be a PostgreSQL address, such as postgresql://host/db or 'host=… dbname=…', "
            "or a function that returns a connection"
        )
    return SqlTable(query, lambda: _postgres(connection), str(Url(connection)) if is_url else "PostgreSQL")


def _postgres(url: str) -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError("a query of PostgreSQL needs psycopg: pip install 'tidewheel[postgres]'") from error
    return psycopg.connect(url)
