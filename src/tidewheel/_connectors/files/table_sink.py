"""The base of the sinks to tables of data files: their options, and the modes that they have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

import pyarrow as pa

from tidewheel._connectors.files.compaction import CompactingSink
from tidewheel._connectors.files.merging import KeySet
from tidewheel._connectors.keyed_rows import RowKey
from tidewheel._connectors.sink import Publication
from tidewheel._time.duration import Duration
from tidewheel._values.expressions import Expression
from tidewheel.errors import ConfigError, Retry

Mode = Literal["append", "merge"]
Evolve = Literal["add"]
Table = TypeVar("Table")


@dataclass(frozen=True)
class TableOptions:
    """The options that all tables have, as the user gave them."""

    partition_by: str | Sequence[str]
    create: bool
    evolve: Evolve | None
    compact: Duration | None


def key_of(
    sink: str, mode: Mode, evolve: Evolve | None, key: str | Sequence[str], delete: str | Expression | None
) -> RowKey | None:
    """Check the arguments of a user; return the key of the rows, or None to append them."""
    if mode not in get_args(Mode):
        raise ConfigError(f"the mode of {sink} is append or merge, not {mode!r}")
    if evolve not in (None, *get_args(Evolve)):
        raise ConfigError(f'evolve of {sink} is "add" or None, not {evolve!r}')
    if mode == "merge":
        return RowKey.of(key, delete)
    if key or delete is not None:
        raise ConfigError(f'key= and delete= of {sink} need mode="merge"')
    return None


class TableSink(CompactingSink, Generic[Table]):
    """Exactly once: a batch is one commit of the table, which says which batch it is."""

    guarantee = "exactly once"
    merges: ClassVar[bool] = False
    """Whether the sink replaces rows of the table."""

    def __init__(self, options: TableOptions) -> None:
        super().__init__(options.compact)
        columns = options.partition_by
        self.partition_by = (columns,) if isinstance(columns, str) else tuple(columns)
        self.create, self.evolve = options.create, options.evolve
        self._table: Table | None = None
        """The table as it was after the last publication of this run."""

    def before_commit(self, publication: Publication) -> None:
        """Create the table, or add its new columns: only what fits the table may be committed."""
        known = self._table is not None
        if not publication.tokens or (known and self.evolve is None):
            return
        keys = None if known else self.changed_keys(publication)
        columns = self.prepare_table(publication)
        if keys is not None and columns is not None:
            keys.of(columns, f"sink {publication.sink!r}")

    @abstractmethod
    def prepare_table(self, publication: Publication) -> pa.Schema | None:
        """Create the table or add its new columns. Return all its columns, or None if there is no table."""

    def changed_keys(self, publication: Publication) -> KeySet | None:
        """Return the keys whose rows change; None if rows are appended."""
        return None

    @staticmethod
    def check_unchanged(rows: pa.Schema, table: pa.Schema, who: str) -> None:
        """Raise an error if the table does not have the columns that its tasks have written rows for."""
        for field in rows:
            if field.name not in table.names or table.field(field.name).type != field.type:
                raise Retry(
                    f"{who}: another program has changed the column {field.name!r} of the table during this batch. Nothing "
                    "is committed: the batch runs again, and its records are checked against the table"
                )

    def __getstate__(self) -> dict[str, Any]:
        # The open table stays in the driver.
        return {**super().__getstate__(), "_table": None}
