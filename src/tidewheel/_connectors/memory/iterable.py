"""iterable: items of a Python list as a stream, for tests and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._checkpoint.spark_log import OldPosition
from tidewheel._connectors.schema import arrow_schema, spark_schema
from tidewheel._connectors.source import Source, Unread
from tidewheel._values import ROW, SCALAR, Row, Shape, shape_of
from tidewheel._values.shape import to_columns
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._connectors.memory.iterable_stream import IterableReader

T = TypeVar("T")


@overload
def iterable(items: Iterable[Mapping[str, Any]], batch_size: int | None = None, partitions: int = 1) -> Source[Row]: ...
@overload
def iterable(items: Iterable[T], batch_size: int | None = None, partitions: int = 1) -> Source[T]: ...
def iterable(items: Iterable[Any], batch_size: int | None = None, partitions: int = 1) -> Source[Any]:
    """Read the items of a list in order, `batch_size` items per batch (None: all in one), with `partitions` tasks.

    The fields of dicts, rows, dataclasses and `msgspec.Struct`s become columns; a number or a string becomes the column
    `value`. If the program declares no type, dataclasses, Structs and plain values keep their type, and dicts become rows.

    A program that starts again must pass the same items, and may append more: the job continues at its position.
    """
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch_size, the number of items in a batch, must be at least 1, not {batch_size}")
    if partitions < 1:
        raise ConfigError(f"partitions, the number of tasks that read, must be at least 1, not {partitions}")
    return IterableSource(items, batch_size, partitions)


class IterableSource(Source[Any]):
    """Items of the program. The position is the number of items that were read."""

    kind = "iterable"

    def __init__(self, items: Iterable[Any], batch_size: int | None, partitions: int) -> None:
        """Take the items, all at once."""
        self.items = [_plain_row(item) for item in items]
        self.batch_size = batch_size
        self.partitions = partitions
        self.shape = _shape(self.items)
        self._declared: Shape | None = None

    def declared(self, shape: Shape) -> Source:
        clone = IterableSource(self.items, self.batch_size, self.partitions)
        clone._declared = shape
        return clone

    def describe(self) -> str:
        return f"iterable of {len(self.items)} items"

    def open(self) -> IterableReader:
        from tidewheel._connectors.memory.iterable_stream import IterableReader

        table = self.table()
        # Use the types of Spark, so that a program sees the same values from any source.
        types = arrow_schema(spark_schema(table.schema))
        return IterableReader(table.cast(types), self.batch_size, self.partitions)

    def adopt(self, old: OldPosition, seen: Sequence[SeenFile]) -> Position | None:
        position = super().adopt(old, seen)
        return position["position"] if isinstance(position, dict) else None

    def unread(self, position: Position) -> Mapping[str, Unread]:
        read = position if isinstance(position, int) else 0
        return {"items": Unread(len(self.items) - read, read, len(self.items))}

    def table(self) -> pa.Table:
        """Return the items as columns."""
        shape = self._declared or self.shape
        if not self.items:
            schema = shape.schema()
            if schema is None:
                raise ConfigError(
                    "the columns of an empty iterable are unknown; declare them at the source (type=…), "
                    "with a dataclass, a msgspec.Struct or a type such as int"
                )
            return schema.empty_table()
        try:
            return pa.Table.from_batches([to_columns(self.items, shape)])
        except (pa.ArrowInvalid, TypeError, AttributeError) as error:
            raise ConfigError(f"the items of an iterable do not fit into columns of one type: {error}") from error


def _plain_row(item: Any) -> Any:
    """Convert a Spark row to a dict; return other values unchanged."""
    return item.asDict(recursive=True) if hasattr(item, "asDict") else item


def _shape(items: list[Any]) -> Shape:
    if not items or isinstance(items[0], dict | Row) or hasattr(items[0], "_fields"):
        return ROW
    kinds = {type(item) for item in items if item is not None}
    shape = shape_of(kinds.pop()) if len(kinds) == 1 else SCALAR
    return shape if shape.kind in ("record", "scalar") else SCALAR
