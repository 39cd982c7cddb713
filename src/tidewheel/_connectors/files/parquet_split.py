"""Parquet files as tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tidewheel._connectors.files.arrow_types import spark_type
from tidewheel._connectors.files.columnar_split import ROWS, ColumnarSplit
from tidewheel._connectors.files.fitting import Fitting
from tidewheel._connectors.files.input_file import InputFile
from tidewheel.errors import StepError

_LEGACY_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"


@dataclass(frozen=True)
class ParquetSplit(ColumnarSplit):
    """Row groups of a Parquet file."""

    def _batches(self) -> Iterator[tuple[Fitting, pa.RecordBatch]]:
        # In nanoseconds, Arrow's own unit for an INT96, the years after 2262 have no place.
        with _opened(self.file, coerce_int96_timestamp_unit="us") as file:
            metadata, fitting = file.metadata, _fitting(self.file.shown, file, self.columns)
        groups = list(range(*(self.units or (0, metadata.num_row_groups))))
        codes = None if self.encoded is None else fitting.names[self.encoded]
        as_codes = [codes] if codes is not None and _has_codes(metadata, groups, codes) else None
        with _opened(self.file, coerce_int96_timestamp_unit="us", metadata=metadata, read_dictionary=as_codes) as file:
            for batch in file.iter_batches(ROWS, groups, columns=fitting.wanted(self.only), use_threads=False):
                yield fitting, batch

    def with_codes(self, column: str) -> ParquetSplit:
        return replace(self, encoded=column)

    @classmethod
    def count(cls, file: InputFile) -> int:
        with _opened(file) as opened:
            return int(opened.num_row_groups)

    @classmethod
    def schema_of(cls, file: InputFile) -> pa.Schema:
        with _opened(file, coerce_int96_timestamp_unit="us") as opened:
            int96 = _int96(opened)
            return pa.schema(
                [
                    (column.name, pa.timestamp("us", "UTC") if column.name in int96 else spark_type(column.type))
                    for column in opened.schema_arrow
                ]
            )


@contextmanager
def _opened(file: InputFile, **options: Any) -> Iterator[parquet.ParquetFile]:
    with file.opened("a Parquet file") as opened, parquet.ParquetFile(opened, **options) as found:
        yield found


def _has_codes(metadata: parquet.FileMetaData, groups: Sequence[int], name: str) -> bool:
    """Return whether a text column is stored as codes of a dictionary, in all or most of its pages."""
    for group in map(metadata.row_group, groups):
        columns = (group.column(number) for number in range(group.num_columns))
        column = next(column for column in columns if column.path_in_schema == name)
        # A text that is not stored as a code takes its length, which has 4 bytes, and its characters.
        if not column.has_dictionary_page or column.total_uncompressed_size > 4 * column.num_values:
            return False
    return True


def _int96(file: parquet.ParquetFile) -> set[str]:
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    return {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}


def _fitting(path: str, file: parquet.ParquetFile, columns: pa.Schema) -> Fitting:
    # An INT96 has no zone in Arrow and is an instant; any other time without a zone is a local one.
    fitting = Fitting(path, file.schema_arrow, columns, _int96(file))
    if any(pa.types.is_temporal(fitting.present.field(name).type) for name in fitting.wanted(None)):
        _check_calendar(path, file.metadata.metadata or {})
    return fitting


def _check_calendar(path: str, metadata: Mapping[bytes, bytes]) -> None:
    """Refuse files whose days before 1582 use another calendar: files of Spark 2, and files that are marked so."""
    version = metadata.get(_SPARK_VERSION, b"")
    if version.startswith((b"1.", b"2.")) or any(name in metadata for name in _LEGACY_CALENDAR):
        raise StepError(
            f"{path} was written with the calendar of Spark 2; write it again with a newer Spark, or read the folder with "
            "sources.dataframe(lambda spark: spark.readStream…)"
        )
