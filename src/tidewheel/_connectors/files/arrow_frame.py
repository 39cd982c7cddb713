"""Arrow files as a streaming DataFrame: Spark lists them, and its Python tasks read them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._connectors.files.arrow_split import ArrowSplit
from tidewheel._connectors.files.listed import size_of
from tidewheel._connectors.schema import arrow_schema
from tidewheel.errors import TidewheelError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BYTES = "path string, modificationTime timestamp, length long, content binary"
"""What Spark tells of a file of bytes: always this."""


def arrow_frame(spark: SparkSession, folder: str, schema: StructType, options: Mapping[str, Any]) -> DataFrame:
    """Return the records of the Arrow files in a local folder, with these columns.

    Spark takes them for files of bytes, which it does not read: it knows their names and when they were changed. So it lists
    them by its own rules, and remembers them, as it does files of any other format.
    """
    files = spark.readStream.format("binaryFile").schema(_BYTES).options(**options).load(folder)
    columns = arrow_schema(schema, spark.conf.get("spark.sql.session.timeZone") or "UTC")
    return files.select("path", "modificationTime").mapInArrow(_reading(folder, columns), schema)


def _reading(folder: str, columns: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(listed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in listed:
            changed = pc.cast(batch.column(1), pa.int64()).to_pylist()
            for url, changed_us in zip(batch.column(0).to_pylist(), changed, strict=True):
                path = _local_file(folder, url)
                yield from ArrowSplit(path, size_of(path, changed_us // 1000), columns).read()

    return read


def _local_file(folder: str, url: str) -> str:
    # Not `local_path`: here no sign of the name is written as %20 and the like.
    path = "/" + url.removeprefix("file:").lstrip("/")
    if "=" in os.path.relpath(os.path.dirname(path), folder):
        raise TidewheelError(f"{path} is in a folder that is a column; Arrow files must have all columns in themselves")
    return path
