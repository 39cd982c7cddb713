"""How files of each format become splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from tidewheel._connectors.files.arrow_split import ArrowSplit
from tidewheel._connectors.files.avro_split import AvroSplit
from tidewheel._connectors.files.columnar_split import ColumnarSplit
from tidewheel._connectors.files.csv_split import CsvSplit
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.json_split import JsonSplit
from tidewheel._connectors.files.lines import Part
from tidewheel._connectors.files.options import FileOptions
from tidewheel._connectors.files.orc_split import OrcSplit
from tidewheel._connectors.files.parquet_split import ParquetSplit
from tidewheel._connectors.files.partition_columns import PartitionColumns, folder_values
from tidewheel._connectors.files.text_split import TextSplit
from tidewheel._connectors.split import Split

COLUMNAR: Mapping[str, type[ColumnarSplit]] = {
    "arrow": ArrowSplit,
    "avro": AvroSplit,
    "orc": OrcSplit,
    "parquet": ParquetSplit,
}
"""The formats whose files contain their schema."""
_PARTS_PER_TASK = 4


@dataclass(frozen=True)
class FileSplits:
    """Makes the splits of files of one format and these columns."""

    format: str
    schema: pa.Schema
    options: FileOptions
    only: tuple[str, ...] | None = None
    """The columns to read, in this order; None: all."""

    def of(self, file: InputFile, relative: str, tasks: int) -> list[Split]:
        """Return the splits of a file, in order; one, if `tasks` is 1."""
        folders = {} if self.options.pattern.recursive else folder_values(relative)
        in_file = [name for name in self.schema.names if name not in folders]
        wanted = self.schema if self.only is None else pa.schema([self.schema.field(name) for name in self.only])
        partitions = PartitionColumns.of(file.shown, relative, wanted, folders)
        columns = pa.schema([field for field in wanted if field.name not in folders])
        parts = 1 if tasks == 1 else tasks * _PARTS_PER_TASK
        if self.format in COLUMNAR:
            return self._columnar(file, columns, partitions, parts)
        options = self.options
        whole = file.codec is not None or options.multi_line or options.whole_text
        found = [Part(file)] if whole or parts == 1 else [Part(file, *edges) for edges in ranges(file.size, parts)]
        if self.format == "csv":
            return [
                CsvSplit(part, columns, in_file, options.csv, options.text, partitions=partitions) for part in found
            ]
        if self.format == "json":
            return [JsonSplit(part, columns, options.text, options.multi_line, partitions=partitions) for part in found]
        return [TextSplit(part, columns, options.whole_text, partitions=partitions) for part in found]

    def _columnar(self, file: InputFile, columns: pa.Schema, partitions: PartitionColumns, parts: int) -> list[Split]:
        kind = COLUMNAR[self.format]
        units = 1 if parts == 1 else kind.count(file)
        if units < 2:
            return [kind(file, columns, None, file.size, partitions=partitions)]
        count = min(units, parts)
        return [kind(file, columns, edges, file.size // count, partitions=partitions) for edges in ranges(units, count)]


def ranges(size: int, parts: int) -> list[tuple[int, int]]:
    """Return the numbers below `size` in this many ranges of about equal size, the first to the last.

    >>> ranges(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    edges = [size * part // parts for part in range(parts + 1)]
    return list(pairwise(edges))
