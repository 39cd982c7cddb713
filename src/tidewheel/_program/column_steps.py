"""ColumnSteps: steps that compute columns with Arrow expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import pyarrow.compute as pc

from tidewheel._operators.stateless.expressions import Select, WithColumns
from tidewheel._program.steps import Steps
from tidewheel._values.expressions import Expression, is_expression
from tidewheel._values.type_variables import Value
from tidewheel.errors import GraphError

if TYPE_CHECKING:
    from tidewheel._program.stream import Stream
    from tidewheel._values import Row


class ColumnSteps(Steps[Value]):
    """Steps that work on whole columns. No Python code runs for each record."""

    def with_columns(self, name: str | None = None, /, **columns: Expression) -> Stream[Row]:
        """Add columns, or replace columns of the same name. Other columns, keys and timestamps stay.

        The resulting records are rows, whatever type they had before.

        - `columns`: the new columns, each a `pyarrow.compute` expression over columns of the stream. Expressions are
          checked when the graph is built if the columns are known (a declared type), otherwise when the run starts.
          Write a constant as `pc.scalar(…)`. Arithmetic follows Arrow: an integer divided by an integer is an integer,
          and an integer divided by a constant such as 100.0 is a 32-bit float. For Python's result write
          `pc.field("cents").cast("float64") / 100`.

        >>> import pyarrow.compute as pc
        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("euros")
        >>> orders = job.source("in", sources.iterable([{"user": "ada", "cents": 250}]))
        >>> _ = orders.with_columns("euros", euros=pc.field("cents").cast("float64") / 100).sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'user': 'ada', 'cents': 250, 'euros': 2.5}]
        """
        name, _ = self._named("with_columns", name, columns)
        return self._same(name, WithColumns(_expressions(name, "with_columns", columns)))

    @overload
    def select(self, name: str, /, *columns: str, **computed: Expression) -> Stream[Row]: ...
    @overload
    def select(self, columns: list[str] = ..., /, **computed: Expression) -> Stream[Row]: ...
    def select(self, name: Any = None, /, *columns: str, **computed: Expression) -> Stream[Row]:
        """Keep only these columns. Keys and timestamps stay. Columns that no step uses are not read from the source.

        The resulting records are rows, whatever type they had before.

        - `columns`: the names of columns to keep unchanged; a list if the step has no name, `select(["user", "cents"])`.
        - `computed`: additional columns, each an expression, as in `with_columns`.

        >>> import pyarrow.compute as pc
        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("users")
        >>> orders = job.source("in", sources.iterable([{"user": "ada", "cents": 250, "place": "Rome"}]))
        >>> _ = orders.select("short", "user", big=pc.field("cents") > 100).sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'user': 'ada', 'big': True}]
        """
        if isinstance(name, list):
            name, columns = None, (*name, *columns)
        name, _ = self._named("select", name, columns)
        for column in columns:
            if not isinstance(column, str):
                raise GraphError(
                    f"step {name!r}: select takes names of columns, and expressions by name (cents=pc.field(…) * 2), not "
                    f"{column!r}"
                )
        twice = sorted({*columns} & {*computed} | {column for column in columns if columns.count(column) > 1})
        if twice:
            raise GraphError(f"step {name!r}: select has the column {', '.join(twice)} twice")
        expressions = _expressions(name, "select", {**{column: pc.field(column) for column in columns}, **computed})
        return self._same(name, Select(expressions))


def _expressions(name: str, step: str, columns: dict[str, Any]) -> dict[str, Any]:
    if not columns:
        raise GraphError(f"step {name!r}: {step} was given no columns")
    for column, expression in columns.items():
        if not is_expression(expression):
            raise GraphError(
                f"step {name!r}: {column}={expression!r} is not an expression of pyarrow.compute; write pc.field('cents') "
                "for a column and pc.scalar(…) for a constant; what changes, such as a cell's value, is for a function: map"
            )
    return columns
