"""CSV files as tasks read them.

Arrow and Spark differ about much in CSV: quotes inside of quotes, escapes, spaces around numbers, lines with too few values.
So the text of a file is looked at first. What both are known to read alike, Arrow reads; all else is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tidewheel._connectors.direct import ReadBySpark
from tidewheel._connectors.files.extensions import SEPARATORS, names_columns
from tidewheel._connectors.files.listed import LISTING, gone
from tidewheel._connectors.files.text_times import as_text, has_text, with_times
from tidewheel._connectors.split import Split

_BLOCK = 8 * 1024 * 1024
_PLAIN = (
    pa.types.is_string,
    pa.types.is_signed_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal128,
    has_text,
)
"""Types of columns for which Arrow and Spark agree on every text that is taken here, once the text is looked at."""
_CODECS = (".bz2", ".br", ".deflate", ".lz4", ".snappy", ".xz", ".zst")
"""Compressed files that only Spark opens; Arrow knows some of them in other forms."""
_QUOTE, _LINE_FEED, _RETURN = b'"\n\r'


def why_not_csv(columns: pa.Schema) -> str | None:
    """Return why CSV files with these columns cannot be read directly; None if they can."""
    for field in columns:
        if not any(is_plain(field.type) for is_plain in _PLAIN):
            return f"the CSV column {field.name!r} is neither text, a number, a boolean, a time nor a date"
    return None if len(columns) else "no column of the CSV files is read"


@dataclass(frozen=True)
class CsvForm:
    """What the options of a source say about its CSV files."""

    header: bool | None
    """Whether the first line of a file is the names of its columns; None: the program does not say."""
    separator: str

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> CsvForm | str:
        """Return what the options say, or which of them only Spark knows."""
        header: bool | None = None
        separator = ","
        for name, value in options.items():
            match name.lower():
                case listing if listing in LISTING:
                    pass
                case "header" if str(value).lower() in ("true", "false"):
                    header = str(value).lower() == "true"
                case "sep" | "delimiter" if value in SEPARATORS:
                    separator = value
                case _:
                    return f"the option {name} is Spark's own"
        return cls(header, separator)


@dataclass(frozen=True)
class CsvSplit(Split):
    """A file of CSV lines; `names` are all its columns in their order, `columns` those that are read."""

    path: str
    size: int
    columns: pa.Schema
    names: Sequence[str]
    form: CsvForm
    reading = "dear"

    def read(self) -> Iterator[pa.RecordBatch]:
        if self.path.lower().endswith(_CODECS):
            raise ReadBySpark(f"{self.path} is compressed in a way that Spark knows")
        if len(self.names) < 2:
            raise ReadBySpark(f"{self.path} has one column, and lines of spaces are then no records to Spark")
        first = True
        try:
            for text in _blocks(self.path):
                self._check_lines(text)
                rest = self._behind_names(text) if first else text
                first = False
                if rest:
                    self._check_values(rest)
                    yield self._parsed(rest)
        except FileNotFoundError as error:
            raise gone(self.path) from error
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            # A line that Arrow refuses may be one that Spark takes, such as one with too few values.
            raise ReadBySpark(f"{self.path}: {error}") from error

    def _behind_names(self, text: bytes) -> bytes:
        """Return the text behind a first line that must name the columns: Spark refuses a file that names others.

        Where the program does not say whether there is one, Spark rejects a line that looks like it.
        """
        line, _, rest = text.partition(b"\n")
        if self.form.header is None and names_columns(line.decode(), self.names, self.form.separator):
            raise ReadBySpark(f"{self.path} begins with the names of the columns")
        if not self.form.header:
            return text
        if not line.strip():
            raise ReadBySpark(f"{self.path} begins with an empty line, where Spark looks for the names on the next")
        names = [name.strip('"').lower() for name in line.rstrip(b"\r").decode().split(self.form.separator)]
        if names != [name.lower() for name in self.names]:
            raise ReadBySpark(f"{self.path} may name other columns in its first line")
        return rest

    def _parsed(self, text: bytes) -> pa.RecordBatch:
        reading = csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(self.names))
        parsing = csv.ParseOptions(
            delimiter=self.form.separator,
            quote_char='"',
            double_quote=False,
            escape_char=False,
            newlines_in_values=False,
        )
        converting = csv.ConvertOptions(
            column_types=as_text(self.columns),
            include_columns=self.columns.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            include_missing_columns=True,  # The one for lines that do not parse: these are for Spark.
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
        )
        table = csv.read_csv(pa.BufferReader(text), reading, parsing, converting).combine_chunks()
        for column in table.columns:
            # Words such as inf and nan are numbers to one and none to the other.
            if pa.types.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py() is False:
                raise ReadBySpark(f"{self.path} has a number that is not finite")
        batches = table.to_batches()
        return (
            with_times(self.path, batches[0], self.columns) if batches else pa.RecordBatch.from_pylist([], self.columns)
        )

    def _check_lines(self, text: bytes) -> None:
        """Refuse text whose lines may be others to Arrow than to Spark."""
        if b"\0" in text or text.startswith(b"\xef\xbb\xbf"):
            raise ReadBySpark(f"{self.path} is not plain text")
        if text.count(b"\r") != text.count(b"\r\n"):
            raise ReadBySpark(f"{self.path} has a carriage return inside of a line")

    def _check_values(self, text: bytes) -> None:
        """Refuse lines whose values may be others to Arrow than to Spark."""
        numbers = any(not pa.types.is_string(field.type) for field in self.columns)
        if numbers and (b"0x" in text or b"0X" in text):
            raise ReadBySpark(f"{self.path} has what may be hexadecimal digits")
        if numbers and _has_loose_space(text, self.form.separator.encode()):
            raise ReadBySpark(f"{self.path} has a space beside a value")
        if b'"' in text and (b"\\" in text or not _quotes_are_plain(text, ord(self.form.separator))):
            raise ReadBySpark(
                f"{self.path} has a quote or an escape inside of a value; Spark takes doubled ones for one with escape='\"' alone"
            )


def _blocks(path: str) -> Iterator[bytes]:
    """Yield the text of a file, decompressed as its name says, in blocks of whole lines."""
    with pa.input_stream(path, compression="detect") as stream:
        rest = b""
        while data := stream.read(_BLOCK):
            rest += data
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
                rest = rest[end:]
        if rest:
            yield rest


def _has_loose_space(text: bytes, separator: bytes) -> bool:
    """Tell whether a space is at the edge of a value, where Arrow takes it away and Spark does not."""
    edges = (separator, b"\n", b"\r", b'"')
    for space in (b" ", b"\t"):
        if space == separator or space not in text:
            continue
        if text.startswith(space) or text.endswith(space):
            return True
        if any(edge + space in text or space + edge in text for edge in edges):
            return True
    return False


def _quotes_are_plain(text: bytes, separator: int) -> bool:
    """Tell whether each quote begins or ends a whole value, on one line."""
    signs = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(signs == _QUOTE)
    if len(quotes) % 2:
        return False
    begins, ends = quotes[::2], quotes[1::2]
    before = signs[begins[begins > 0] - 1]
    after = signs[ends[ends < len(signs) - 1] + 1]
    lines = np.flatnonzero(signs == _LINE_FEED)
    return bool(
        np.isin(before, (separator, _LINE_FEED)).all()
        and np.isin(after, (separator, _LINE_FEED, _RETURN)).all()
        and (np.searchsorted(lines, begins) == np.searchsorted(lines, ends)).all()
    )
