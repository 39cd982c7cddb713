"""Table: a reference table of a job, and where its rows come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidewheel._values.keyed_table import NotAKey, key_columns, key_type, sorted_rows
from tidewheel.errors import ConfigError


class TableSource(ABC):
    """A source of the rows of a reference table. The driver reads it."""

    @abstractmethod
    def load(self, spark: Any) -> pa.Table:
        """Return all rows. `spark` is the run's Spark session; None in a run in memory."""

    def pieces(self, spark: Any) -> Iterator[pa.Table]:
        """Yield all rows in pieces with the same columns, at least one. Sources that can, hold one piece at a time."""
        yield self.load(spark)

    @abstractmethod
    def describe(self) -> str:
        """Return a short text for messages, without credentials."""

    def fingerprint(self) -> str | None:
        """Return a text that changes when the rows may have changed; None: only reading them shows it."""
        return None


class Table:
    """A reference table of a job, created by `Job.table`, for `Stream.lookup`."""

    def __init__(self, name: str, source: TableSource, key: Sequence[str], refresh: int | None) -> None:
        """Create a table; called by `Job.table`."""
        self.name, self.source, self.key = name, source, tuple(key)
        self.refresh = refresh
        """The nanoseconds after which it is loaded again, 0 before each batch; None: at each start of the job."""
        self.schema: pa.Schema | None = None
        """Its columns, once it is loaded."""

    def __repr__(self) -> str:
        return f"<Table {self.name!r} by {', '.join(self.key)}>"

    def __getstate__(self) -> Mapping[str, Any]:
        # Only the driver reads the source: it may hold a connection, or a whole DataFrame.
        return {**self.__dict__, "source": None}

    def checked(self, rows: pa.Table) -> pa.Table:
        """Return the rows in a fixed order; raise a `ConfigError` if a column is missing or the key is not unique."""
        self._check_names(rows)
        try:
            found = sorted_rows(rows, self.key)
        except NotAKey as error:
            raise ConfigError(f"{self._where()}: {error}") from None
        except pa.ArrowException as error:
            raise ConfigError(f"{self._where()}: it is too large for a reference table: {error}") from error
        return found.replace_schema_metadata(None)

    def checked_keys(self, rows: pa.Table, before: int) -> list[pa.Array]:
        """Return the columns of the key; raise a `ConfigError` if they cannot be one. `before` rows came earlier."""
        self._check_names(rows)
        try:
            return key_columns(rows, self.key, before)
        except NotAKey as error:
            raise ConfigError(f"{self._where()}: {error}") from None

    def _check_names(self, rows: pa.Table) -> None:
        twice = sorted({name for name in rows.column_names if rows.column_names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"{self._where()}: the column {twice[0]!r} comes twice; give each column a name of its own"
            )
        for column in self.key:
            if column not in rows.column_names:
                raise ConfigError(
                    f"{self._where()}: there is no column {column!r}; it has {', '.join(rows.column_names)}"
                )

    def _where(self) -> str:
        return f"table {self.name!r} ({self.source.describe()})"

    def key_types(self) -> tuple[pa.DataType, ...] | None:
        """Return the types of the key, as `key_type` returns them; None: the table is not loaded yet."""
        return None if self.schema is None else tuple(key_type(self.schema.field(name).type) for name in self.key)
