"""Reference tables from Parquet, CSV or Arrow files, on disk or in an object store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from tidewheel._connectors.files.choose import ListedFile
from tidewheel._connectors.files.extensions import format_by_name
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.listing import Pattern, listing
from tidewheel._connectors.files.taken import TakenFiles
from tidewheel._connectors.schema import declared_schema
from tidewheel._connectors.tables.table import TableSource
from tidewheel._core.urls import Url
from tidewheel._storage import absolute
from tidewheel.errors import ConfigError, NotFound


def _parquet(opened: Any) -> Iterator[pa.Table]:
    file = pyarrow.parquet.ParquetFile(opened)
    yield file.schema_arrow.empty_table()
    for number in range(file.num_row_groups):
        yield file.read_row_group(number)


def _arrow(opened: Any) -> Iterator[pa.Table]:
    yield pyarrow.feather.read_table(opened)


_READERS = {"parquet": _parquet, "arrow": _arrow}


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


@dataclass(frozen=True)
class FileTable(TableSource):
    """All rows of a file, or of the files of a folder."""

    path: str
    format: str | None = None
    schema: pa.Schema | None = None
    """The types of the columns of a CSV file; None: they are inferred."""

    def load(self, spark: Any) -> pa.Table:
        return pa.concat_tables(self.pieces(spark))

    def pieces(self, spark: Any) -> Iterator[pa.Table]:
        schema: pa.Schema | None = None
        for file in self._files():
            for piece in self._read(file):
                piece = piece.replace_schema_metadata(None)
                if schema is not None and piece.schema != schema:
                    raise ConfigError(
                        f"the files of {self.describe()} have different columns: {_described(schema)}; and in "
                        f"{file.path}: {_described(piece.schema)}"
                    )
                schema = piece.schema
                yield piece

    def fingerprint(self) -> str:
        return repr([(file.path, file.modified_ms, file.size) for file in self._files()])

    def describe(self) -> str:
        return str(Url(self.path))

    def _files(self) -> list[ListedFile]:
        found = sorted(listing(self.path, Pattern(recursive=True)).files(TakenFiles()))
        if not found:
            raise NotFound(f"there is no file at {self.describe()}")
        return found

    def _read(self, listed: ListedFile) -> Iterator[pa.Table]:
        path, store = listing(self.path, Pattern()).place(listed.path)
        file = InputFile(path, listed.size, listed.modified_ms, store)
        format = self.format or format_by_name(os.path.basename(listed.path))
        if format in _READERS:
            with file.opened(f"a {format} file") as opened:
                yield from _READERS[format](opened)
            return
        if format == "csv":
            types = None if self.schema is None else {field.name: field.type for field in self.schema}
            with file.opened("a CSV file", decompress=True) as opened:
                yield pyarrow.csv.read_csv(
                    opened, convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True)
                )
            return
        raise ConfigError(
            f"the format of {file.shown} does not follow from its name; use tables.files(path, format=…) with "
            '"parquet", "csv" or "arrow"'
        )


def files(path: str | os.PathLike[str], format: str | None = None, *, schema: Any = None) -> TableSource:
    """Read a reference table from a file, or from all files of a folder, at a path or URL.

    The files are read again if one of them changed. The first line of a CSV file names its columns.

    - `path`: the file or folder, such as `prices.csv` or `s3://bucket/customers/`.
    - `format`: "parquet", "csv" or "arrow"; None: by the extensions of the files.
    - `schema`: the types of the columns of a CSV file, such as "sku string, cents long". Other columns, and all without
      it, get the type that fits all of their values.

    >>> from tidewheel import Job, tables
    >>> Job("shop").table("prices", tables.files("prices/", "csv", schema="sku string"), key="sku")
    <Table 'prices' by sku>
    """
    if format not in (None, "parquet", "csv", "arrow"):
        raise ConfigError(f'a table has files of the format "parquet", "csv" or "arrow", not {format!r}')
    return FileTable(absolute(os.fspath(path)), format, None if schema is None else declared_schema(schema))
