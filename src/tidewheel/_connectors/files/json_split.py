"""Files of JSON lines as tasks read them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import json

from tidewheel._connectors.direct import ReadBySpark
from tidewheel._connectors.files.listed import gone
from tidewheel._connectors.files.text_times import as_text, has_text, with_times
from tidewheel._connectors.split import Split

_PLAIN = (pa.types.is_int32, pa.types.is_int64, pa.types.is_float64, pa.types.is_string, pa.types.is_boolean, has_text)
"""Types of columns for which Arrow and Spark agree on every text that is taken here."""


def why_not_json(columns: pa.Schema) -> str | None:
    """Return why JSON lines with these columns cannot be read directly; None if they can."""
    for field in columns:
        if not any(is_plain(field.type) for is_plain in _PLAIN):
            return (
                f"the JSON column {field.name!r} is neither text, an int, a long, a double, a boolean, a time nor a day"
            )
    return None


@dataclass(frozen=True)
class JsonSplit(Split):
    """A file with a JSON object a line."""

    path: str
    size: int
    columns: pa.Schema
    reading = "dear"

    def read(self) -> Iterator[pa.RecordBatch]:
        parse = json.ParseOptions(explicit_schema=as_text(self.columns), unexpected_field_behavior="ignore")
        if self.size == 0:
            return
        rows = 0
        try:
            with _CountedLines(self.path) as lines:
                for batch in json.open_json(lines, parse_options=parse):
                    batch.validate(full=True)  # Arrow takes text as it is; it may be no Unicode.
                    rows += batch.num_rows
                    yield with_times(self.path, batch, self.columns)
        except FileNotFoundError as error:
            raise gone(self.path) from error
        except (pa.ArrowException, ValueError, OSError) as error:
            # A line that Arrow refuses may be one that Spark takes, such as a number where text is declared.
            raise ReadBySpark(f"{self.path}: {error}") from error
        if rows != lines.count:
            # Spark takes one object of each line. Arrow takes all, and also those that are on several lines.
            raise ReadBySpark(f"{self.path} has {rows} objects on {lines.count} lines")


class _CountedLines(io.RawIOBase):
    """The text of a file, decompressed as its name says, and how many lines of it were read."""

    def __init__(self, path: str) -> None:
        self._stream = pa.input_stream(path, compression="detect")
        self._breaks = 0
        self._last = b"\n"

    @property
    def count(self) -> int:
        return self._breaks + (self._last != b"\n")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(None if size < 0 else size)
        self._breaks += data.count(b"\n")
        self._last = data[-1:] or self._last
        return data

    def close(self) -> None:
        self._stream.close()
        super().close()
