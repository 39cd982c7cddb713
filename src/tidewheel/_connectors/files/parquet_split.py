"""Parquet files as tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tidewheel._connectors.direct import ReadBySpark
from tidewheel._connectors.files.columnar_split import ROWS, ColumnarSplit, read_errors
from tidewheel._connectors.files.fitting import Fitting, widens
from tidewheel._connectors.split import Split

_LEGACY_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"


@dataclass(frozen=True)
class ParquetSplit(ColumnarSplit):
    """Some row groups of a Parquet file; None: all of it."""

    groups: tuple[int, ...] | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        # In nanoseconds, Arrow's own unit for an INT96, the years after 2262 have no place.
        with _opened(self.path, coerce_int96_timestamp_unit="us") as file:
            fitting = _fitting(self.path, file, self.columns).of(self.only)
            groups = None if self.groups is None else list(self.groups)
            for batch in file.iter_batches(ROWS, groups, columns=fitting.wanted, use_threads=False):
                yield fitting.fitted(batch)


def by_row_groups(path: str, columns: pa.Schema) -> list[Split]:
    """Return a split for each row group of a file."""
    with _opened(path) as file:
        meta = file.metadata
        sizes = [meta.row_group(number).total_byte_size for number in range(meta.num_row_groups)]
    return [ParquetSplit(path, size, columns, (number,)) for number, size in enumerate(sizes)]


@contextmanager
def _opened(path: str, **options: Any) -> Iterator[parquet.ParquetFile]:
    with read_errors(path, "a Parquet file"), parquet.ParquetFile(path, **options) as file:
        yield file


def _fitting(path: str, file: parquet.ParquetFile, columns: pa.Schema) -> Fitting:
    _check_calendar(path, file.metadata.metadata or {})
    fitting = Fitting(path, file.schema_arrow, columns)
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    int96 = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    for name, field in zip(fitting.names, columns, strict=True):
        if name is not None:
            if any(leaf.startswith(f"{name}.") for leaf in int96):
                raise ReadBySpark(f"{path} has an INT96 inside the column {name!r}")
            _check_type(path, fitting.present.field(name).type, field.type, name in int96)
    return fitting


def _check_calendar(path: str, metadata: Mapping[bytes, bytes]) -> None:
    """Refuse files whose days before 1582 are of another calendar: those of Spark 2, and those that say so."""
    version = metadata.get(_SPARK_VERSION, b"")
    if version.startswith((b"1.", b"2.")) or any(name in metadata for name in _LEGACY_CALENDAR):
        raise ReadBySpark(f"{path} has the calendar of Spark 2")


def _check_type(path: str, given: pa.DataType, wanted: pa.DataType, int96: bool) -> None:
    """Refuse types for which a cast of Arrow and a reading of Spark may differ."""
    if given == wanted and not int96:
        return
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        # An INT96 has no zone in Arrow and is an instant to Spark; any other time without a zone is a local one.
        zoned = (given.tz is not None or int96) == (wanted.tz is not None)
        if zoned and (int96 or given.unit in ("us", "ms")):
            return
    if not widens(given, wanted):
        raise ReadBySpark(f"{path} has {given} where the source has {wanted}")
