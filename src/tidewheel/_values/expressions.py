"""Arrow's compute expressions over columns: evaluation, result types, and the columns that they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero


class Expression(Protocol):
    """An expression of `pyarrow.compute.field`, `pyarrow.compute.scalar` and their combinations.

    A protocol, so that a type checker without pyarrow can distinguish an expression from a function.
    """

    def is_valid(self) -> Any:
        """Return an expression that is true if there is a value."""

    def is_nan(self) -> Any:
        """Return an expression that is true if the value is not a number."""


def is_expression(given: object) -> bool:
    """Return whether this is an Arrow expression."""
    return isinstance(given, pc.Expression)


def evaluated(columns: pa.RecordBatch, expressions: Sequence[Any]) -> list[pa.Array]:
    """Return one column per expression, each as long as the columns."""
    names = [str(number) for number in range(len(expressions))]
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([columns])))
    project = acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names))
    # Without threads the rows keep their order.
    table = acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)
    return [_array(column) for column in table.columns]


def _array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def result_types(schema: pa.Schema, expressions: Sequence[Any]) -> list[pa.DataType]:
    """Return the result types of expressions over such columns; raise a `ValueError` with the reason if they do not fit."""
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    try:
        return [array.type for array in evaluated(empty, expressions)]
    except (pa.ArrowException, TypeError) as error:
        there = ", ".join(f"{field.name} ({field.type})" for field in schema)
        reason = str(error).split(" in ")[0] if "No match for FieldRef" in str(error) else str(error)
        raise ValueError(
            f"{' and '.join(map(str, expressions))} does not fit: {reason}; the columns are {there}"
        ) from None


def columns_used(schema: pa.Schema, expression: Any) -> set[str]:
    """Return the columns of a schema that the expression reads."""
    used = set()
    for at, field in enumerate(schema):
        try:
            result_types(schema.remove(at), [expression])
        except ValueError:
            used.add(field.name)
    return used
