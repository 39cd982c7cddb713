"""Reference tables from rows of the program or of a function; and the conversion of an argument to a table's source."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._connectors.tables.files import files
from tidewheel._connectors.tables.table import TableSource
from tidewheel._subjects import load
from tidewheel._values.shape import ANY, to_columns
from tidewheel.errors import ConfigError, GraphError


@dataclass(frozen=True, eq=False)
class GivenTable(TableSource):
    """Rows that the program has made."""

    rows: Any

    def load(self, spark: Any) -> pa.Table:
        return arrow_table(self.rows)

    def describe(self) -> str:
        return f"a {type(self.rows).__name__}"

    def fingerprint(self) -> str | None:
        # A DataFrame of Spark is computed again each time.
        return None if hasattr(self.rows, "toArrow") else ""


@dataclass(frozen=True, eq=False)
class FunctionTable(TableSource):
    """Rows that a function returns."""

    function: Callable[..., Any]

    def load(self, spark: Any) -> pa.Table:
        if not self._takes_spark():
            return arrow_table(self.function())
        if spark is None:
            raise ConfigError("its function takes a Spark session, and a run in memory has none")
        return arrow_table(self.function(spark))

    def describe(self) -> str:
        return f"the function {getattr(self.function, '__name__', type(self.function).__name__)}"

    def _takes_spark(self) -> bool:
        parameters = inspect.signature(self.function).parameters.values()
        return any(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters)


def as_table_source(name: str, source: Any) -> TableSource:
    """Return the source for an argument of `Job.table`."""
    if isinstance(source, TableSource):
        return source
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if os.path.isdir(os.path.join(path, "_delta_log")):
            found: TableSource = load("tables", "delta")(path)
            return found
        return files(path)
    if callable(source):
        return FunctionTable(source)
    if isinstance(source, list | pa.Table | pa.RecordBatch) or _is_frame(source):
        return GivenTable(source)
    raise GraphError(
        f"table {name!r}: {type(source).__name__!r} is not a source of a table: give a path, one of tidewheel.tables, a "
        "DataFrame, a list of records, or a function that returns one of these"
    )


def arrow_table(rows: Any) -> pa.Table:
    """Return rows of any supported kind as an Arrow table."""
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "toArrow"):  # A DataFrame of Spark.
        table: pa.Table = rows.toArrow()
        return table
    if hasattr(rows, "to_arrow"):  # A DataFrame of Polars.
        return pa.table(rows.to_arrow())
    if hasattr(rows, "iloc"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    if isinstance(rows, Mapping) or not hasattr(rows, "__iter__"):
        raise ConfigError(f"its rows are a DataFrame, an Arrow table, or records in a list; not {type(rows).__name__}")
    records = list(rows)
    if not records:
        raise ConfigError("the columns of an empty list are unknown; give an Arrow table")
    try:
        return pa.Table.from_batches([to_columns(records, ANY)])
    except Exception as error:
        raise ConfigError(f"its records do not fit into columns: {error}") from error


def _is_frame(source: Any) -> bool:
    return any(hasattr(source, name) for name in ("toArrow", "to_arrow", "iloc", "__arrow_c_stream__"))
