"""LookupSteps: steps that look up rows of reference tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tidewheel._connectors.tables.table import Table
from tidewheel._operators.stateless.lookup import Lookup
from tidewheel._program.arguments import checked_function
from tidewheel._program.steps import Steps
from tidewheel._values import Row
from tidewheel._values.type_variables import Value
from tidewheel.errors import GraphError

if TYPE_CHECKING:
    from tidewheel._program.stream import Stream

New = TypeVar("New")
On = str | Sequence[str] | Callable[[Any], Any] | None
Columns = Sequence[str] | Mapping[str, str] | None


class LookupSteps(Steps[Value]):
    """Steps that join a stream with a reference table of the job."""

    @overload
    def lookup(
        self,
        name: str,
        table: Table,
        *,
        on: On = None,
        how: Literal["inner", "left"] = "inner",
        columns: Columns = None,
        combine: Callable[[Value, Any], New],
        returns: type[New] | None = None,
    ) -> Stream[New]: ...
    @overload
    def lookup(
        self,
        name: str,
        table: Table,
        *,
        on: On = None,
        how: Literal["inner", "left"] = "inner",
        columns: Columns = None,
    ) -> Stream[Row]: ...
    def lookup(
        self,
        name: str,
        table: Table,
        *,
        on: On = None,
        how: Literal["inner", "left"] = "inner",
        columns: Columns = None,
        combine: Callable[[Value, Any], Any] | None = None,
        returns: Any = None,
    ) -> Stream[Any]:
        """Add to each record the columns of the row of a reference table that has its key. Keys and timestamps stay.

        All records of a batch see the same version of the table. The join works on whole columns, and the resulting
        records are rows, whatever type they had before.

        - `name`: required, because dropped records are counted by name, as `name/dropped` in the job's counts.
        - `table`: a table of this job, created by `job.table`.
        - `on`: the column of the record that has the key, or a list of columns for a table whose key has several; or a
          function of the record that returns the key, a tuple for several columns. None: the key of the stream. A
          record whose key is null finds no row.
        - `how`: "inner" drops a record without a row, and counts it; "left" keeps it, with null in the new columns.
        - `columns`: the columns of the table to add, or a dict of such columns with their new names. None: all that are
          not part of the key.
        - `combine`: called with the record and the row, or None without a row; returns the new record. For records that
          are not columns.
        - `returns`: the type that `combine` returns, if it is not annotated.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("priced")
        >>> prices = job.table("prices", [{"sku": "tea", "cents": 300}, {"sku": "milk", "cents": 90}], key="sku")
        >>> orders = job.source("in", sources.iterable([{"id": 1, "sku": "tea"}, {"id": 2, "sku": "rum"}]))
        >>> _ = orders.lookup("price", prices, on="sku", how="left").sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'id': 1, 'sku': 'tea', 'cents': 300}, {'id': 2, 'sku': 'rum', 'cents': None}]
        """
        if not isinstance(table, Table) or self.job.declared_tables.get(table.name) is not table:
            raise GraphError(
                f"step {name!r}: lookup takes a table of this job, as job.table(…) returns it; not {table!r}"
            )
        if how not in ("inner", "left"):
            raise GraphError(f'step {name!r}: how= is "inner" or "left", not {how!r}')
        if combine is not None:
            checked_function(name, combine, "value", "row")
        elif returns is not None:
            raise GraphError(f"step {name!r}: returns= is the type that combine= returns; without it, records are rows")
        renamed = columns if columns is None or isinstance(columns, Mapping) else {column: column for column in columns}
        if isinstance(columns, str) or (renamed is not None and len({*renamed.values()}) < len(columns or ())):
            raise GraphError(f"step {name!r}: columns= is a list of different columns of the table, not {columns!r}")
        return self._same(name, Lookup(table, self._on(name, table, on), how, renamed, combine, returns))

    def _on(self, name: str, table: Table, on: On) -> tuple[str, ...] | Callable[[Any], Any] | None:
        if on is None and self.job.graph.nodes[self.port.node].key_name is None:
            raise GraphError(
                f'step {name!r}: the stream has no keys: say which column has the key, on="{table.key[0]}"'
            )
        if on is None:
            return None
        if callable(on):
            checked_function(name, on, "value")
            return on
        chosen = (on,) if isinstance(on, str) else tuple(on)
        if len(chosen) != len(table.key):
            raise GraphError(
                f"step {name!r}: the key of the table {table.name!r} has {len(table.key)} columns, "
                f"{', '.join(table.key)}, and on= names {len(chosen)}"
            )
        return chosen
