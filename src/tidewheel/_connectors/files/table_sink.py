"""The base of the sinks to tables of data files: their options, and the modes that they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from tidewheel._connectors.files.compaction import CompactingSink
from tidewheel._connectors.keyed_rows import RowKey
from tidewheel._time.duration import Duration
from tidewheel._values.expressions import Expression
from tidewheel.errors import ConfigError

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

    def __getstate__(self) -> dict[str, Any]:
        # The open table stays in the driver.
        return {**super().__getstate__(), "_table": None}
