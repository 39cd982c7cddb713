"""iterable: items of a Python list as a stream, for tests and examples."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.direct import DirectReader
from tidewheel._connectors.schema import arrow_schema, spark_schema
from tidewheel._connectors.source import Source, Unread
from tidewheel._values import ROW, SCALAR, Row, Shape, shape_of
from tidewheel._values.shape import to_columns
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


@overload
def iterable(items: Iterable[Mapping[str, Any]], batch_size: int | None = None, partitions: int = 1) -> Source[Row]: ...
@overload
def iterable(items: Iterable[T], batch_size: int | None = None, partitions: int = 1) -> Source[T]: ...
def iterable(items: Iterable[Any], batch_size: int | None = None, partitions: int = 1) -> Source[Any]:
    """Give the items in order, `batch_size` of them in each batch (None: all in one), read by `partitions` tasks.

    Dicts, rows, dataclasses and `msgspec.Struct`s give their columns; a number, a string and so on is the one column
    `value`. Where the program declares nothing, dataclasses and Structs come as themselves, plain values as
    themselves, and dicts as rows, as from any other source.

    On replay the same positions are read again: a program that starts again must give the same items, and may give more
    behind them.
    """
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch_size is the number of items in a batch, at least 1, not {batch_size}")
    if partitions < 1:
        raise ConfigError(f"partitions is the number of tasks that read, at least 1, not {partitions}")
    return IterableSource(items, batch_size, partitions)


class IterableSource(Source[Any]):
    """Items of the program; a position in them is an offset."""

    def __init__(self, items: Iterable[Any], batch_size: int | None, partitions: int) -> None:
        """Take the items, all at once."""
        self.items = [_plain_row(item) for item in items]
        self.batch_size = batch_size
        self.partitions = partitions
        self.shape = _shape(self.items)
        self._declared: Shape | None = None
        self._path = ""

    def declared(self, shape: Shape) -> Source:
        clone = IterableSource(self.items, self.batch_size, self.partitions)
        clone._declared = shape
        return clone

    def describe(self) -> str:
        return f"iterable of {len(self.items)} items"

    def direct(self, columns: pa.Schema) -> DirectReader | str:
        from tidewheel._connectors.memory.iterable_stream import IterableReader
        from tidewheel._connectors.stream_reader import DirectStream

        return DirectStream(IterableReader(self._path, self.batch_size or 0, self.partitions), columns)

    def unread(self, offsets: Position) -> Mapping[str, Unread]:
        position = int(json.loads(str(offsets))["position"])
        return {"items": Unread(len(self.items) - position, position, len(self.items))}

    def load(self, spark: SparkSession) -> DataFrame:
        from tidewheel._connectors.memory.iterable_stream import NAME, IterableStream

        table = self.table()
        schema = spark_schema(table.schema)
        # The items go to Spark's planner as a file, not inside the source: what is inside travels to every task.
        folder = tempfile.mkdtemp(prefix="tidewheel-iterable-")
        weakref.finalize(self, shutil.rmtree, folder, True)
        self._path = path = os.path.join(folder, "items.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, arrow_schema(schema)) as writer:
            writer.write_table(table.cast(arrow_schema(schema)))
        spark.dataSource.register(IterableStream)
        options = {"path": path, "partitions": str(self.partitions), "batch_size": str(self.batch_size or 0)}
        return spark.readStream.format(NAME).schema(schema).options(**options).load()

    def table(self) -> pa.Table:
        """Return the items as columns."""
        shape = self._declared or self.shape
        if not self.items:
            schema = shape.schema()
            if schema is None:
                raise ConfigError(
                    "an iterable without items does not tell its columns; declare them at the source (value=…), "
                    "with a dataclass, a msgspec.Struct or a type such as int"
                )
            return schema.empty_table()
        try:
            return pa.Table.from_batches([to_columns(self.items, shape)])
        except (pa.ArrowInvalid, TypeError, AttributeError) as error:
            raise ConfigError(f"the items of an iterable do not fit into columns of one type: {error}") from error


def _plain_row(item: Any) -> Any:
    """Turn a row of Spark's into a dict; everything else is what it is."""
    return item.asDict(recursive=True) if hasattr(item, "asDict") else item


def _shape(items: list[Any]) -> Shape:
    if not items or isinstance(items[0], dict | Row) or hasattr(items[0], "_fields"):
        return ROW
    kinds = {type(item) for item in items if item is not None}
    shape = shape_of(kinds.pop()) if len(kinds) == 1 else SCALAR
    return shape if shape.kind in ("record", "scalar") else SCALAR
