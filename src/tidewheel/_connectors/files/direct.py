"""Files read by the tasks themselves, with the values that Spark would give."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidewheel._connectors.direct import DirectReader, ReadBySpark, SourceBatch
from tidewheel._connectors.files.arrow_split import ArrowSplit, in_parts
from tidewheel._connectors.files.csv_split import CsvForm, CsvSplit, why_not_csv
from tidewheel._connectors.files.json_split import JsonSplit, why_not_json
from tidewheel._connectors.files.listed import LISTING, size_of
from tidewheel._connectors.files.orc_split import OrcSplit, why_not_orc
from tidewheel._connectors.files.parquet_split import ParquetSplit, by_row_groups
from tidewheel._connectors.files.paths import local_path
from tidewheel._connectors.split import Split

_LARGE = 32 * 1024 * 1024
"""Files above this many bytes may be read by several tasks."""
_BY_COLUMNS: dict[str, Callable[[pa.Schema], str | None] | None] = {
    "arrow": None,
    "csv": why_not_csv,
    "json": why_not_json,
    "orc": why_not_orc,
    "parquet": None,
}
"""What looks at the columns of a format, None where any will do."""


def readable(format: str, columns: pa.Schema, options: Mapping[str, Any]) -> str | None:
    """Return why files of this format and these columns cannot be read directly; None if they can."""
    if format not in _BY_COLUMNS:
        return f"{format} files are Spark's to read"
    form = CsvForm.of(options) if format == "csv" else _only_limits(options)
    if isinstance(form, str):
        return form
    why_not = _BY_COLUMNS[format]
    return None if why_not is None else why_not(columns)


def _only_limits(options: Mapping[str, Any]) -> str | None:
    unknown = [name for name in options if name.lower() not in LISTING]
    return f"the option {unknown[0]} is Spark's own" if unknown else None


class FilesReader(DirectReader):
    """Reads local files; a folder between the source's and the file may be a partition column, which Spark fills in."""

    def __init__(
        self,
        root: str,
        format: str,
        columns: pa.Schema,
        options: Mapping[str, Any] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """Take the folder of the source, the columns that the job reads, and the names of all columns in the files."""
        self.root, self.format, self.columns = root, format, columns
        self.options, self.names = options or {}, tuple(names)

    def splits(self, batch: SourceBatch, tasks: int) -> list[Split]:
        splits: list[Split] = []
        for file in batch.files:
            path = local_path(file.url)
            if path is None or "=" in os.path.relpath(os.path.dirname(path), self.root):
                raise ReadBySpark(f"{file.url} is not local, or is in a folder that is a column")
            splits += self._splits_of(path, size_of(path, file.changed_at), tasks)
        return splits

    def _splits_of(self, path: str, size: int, tasks: int) -> list[Split]:
        match self.format:
            case "csv":
                form = CsvForm.of(self.options)
                assert isinstance(form, CsvForm), "a source with other options is not read directly"
                return [CsvSplit(path, size, self.columns, self.names, form)]
            case "arrow" if size < _LARGE or tasks == 1:
                return [ArrowSplit(path, size, self.columns)]
            case "arrow":
                return in_parts(path, size, self.columns, tasks)
            case "json":
                return [JsonSplit(path, size, self.columns)]
            case "orc":
                return [OrcSplit(path, size, self.columns)]
            case _ if size < _LARGE or tasks == 1:
                return [ParquetSplit(path, size, self.columns)]
            case _:
                return by_row_groups(path, self.columns)
