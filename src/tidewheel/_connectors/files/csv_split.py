"""Splits of CSV files: Arrow parses the blocks that it reads by our rules; all other lines are parsed here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tidewheel._connectors.files.csv_fields import CsvForm, Malformed, Unclosed, fields_of
from tidewheel._connectors.files.extensions import header_error, is_header
from tidewheel._connectors.files.line_split import NOT_UTF8, Fault, LineSplit, NotPlain
from tidewheel._connectors.files.lines import Block, is_utf8
from tidewheel._connectors.files.text_values import PLAIN, BadValue, TextForm, converted, each_converted
from tidewheel._values.columns import without_columns
from tidewheel.errors import StepError

_LINE_FEED, _RETURN = b"\n\r"
_SHOWN = 100


@dataclass(frozen=True)
class CsvSplit(LineSplit):
    """Lines of a CSV file; `names` are all columns of the file in their order, unless its first line names them."""

    names: Sequence[str]
    form: CsvForm = field(default=CsvForm())
    text: TextForm = field(default=PLAIN)

    @property
    def by_line(self) -> bool:
        return not self.form.multi_line

    @cached_property
    def _names(self) -> list[str]:
        """The names of the file's columns, those that the program reads as the source writes them."""
        if not self.form.header:
            return list(self.names)
        file = self.part.file.shown
        try:
            found = [name or "" for name in fields_of(self.part.first_line().decode(), self.form)]
        except (UnicodeDecodeError, Malformed) as error:
            raise StepError(f"the first line of {file} does not name columns: {error}") from error
        places: dict[str, int] = {}
        for name in self.columns.names:
            exact = [place for place, other in enumerate(found) if other.strip() == name]
            same = exact or [place for place, other in enumerate(found) if other.strip().lower() == name.lower()]
            if len(same) != 1:
                raise StepError(
                    f"the first line of {file} names the columns {', '.join(found)}, and the source reads {name!r}, which is "
                    f"{'there twice' if same else 'not among them'}; correct the line, or the schema"
                )
            places[name] = same[0]
        names = [f"column {place} of the file" for place in range(len(found))]
        for name, place in places.items():
            names[place] = name
        return names

    def _blocks(self) -> Iterator[Block]:
        first = self.part.start == 0
        blocks: Iterable[Block] = super()._blocks()
        if self.form.multi_line:  # A record may begin in one block and end in another.
            blocks = [Block(0, b"".join(block.text for block in blocks))]
        for block in blocks:
            if first and self.form.header:
                _ = self._names  # A file without any record has to name its columns too.
                behind = block.text.partition(b"\n")[2]
                if behind:
                    yield Block(1, behind)
            else:
                yield block
            first = False

    def _parsed(self, block: Block) -> Iterator[pa.RecordBatch]:
        if self._begins_with_names(block):
            line, _, rest = block.text.partition(b"\n")
            reason = header_error(line.decode())
            yield self._with_faults(_none(self.columns), [(0, line.removesuffix(b"\r"), Fault(reason))])
            block = Block(1, rest)
        if self.form.multi_line:
            try:
                yield self._fast(block)
            except NotPlain:
                yield self._exact(block)
        else:
            yield from super()._parsed(block)

    def _begins_with_names(self, block: Block) -> bool:
        """Return whether the first line is a header, and the program does not say whether there is one."""
        if self.form.header is not None or self.part.start or block.line:
            return False
        line = block.text.partition(b"\n")[0].decode(errors="replace")
        return is_header(line, self.names, self.form.separator)

    def _fast(self, block: Block) -> pa.RecordBatch:
        text = block.text
        if not self.columns.names or not self._arrow_agrees(text):
            raise NotPlain
        reading = csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self._names)
        # Arrow takes hexadecimal digits for a whole number.
        has_hex = b"0x" in text or b"0X" in text
        parsing = csv.ParseOptions(
            delimiter=self.form.separator, quote_char=self.form.quote or False, newlines_in_values=self.form.multi_line
        )
        converting = csv.ConvertOptions(
            column_types={field.name: _read_as(field.type, has_hex) for field in self.columns},
            include_columns=self.columns.names,
            null_values=["", self.form.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
        )
        try:
            table = csv.read_csv(pa.BufferReader(text), reading, parsing, converting).combine_chunks()
            arrays = [self._value(table.column(field.name), field) for field in self.columns]
        except (pa.ArrowException, BadValue) as error:
            raise NotPlain from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns)

    def _value(self, column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        if pa.types.is_floating(field.type) and pc.all(pc.is_finite(array)).as_py() is False:
            raise NotPlain
        return array if array.type == field.type else converted(array, field.type, self.text, trims=True)

    def _arrow_agrees(self, text: bytes) -> bool:
        """Return whether Arrow finds the fields in this text that `fields_of` finds."""
        if b"\0" in text or text.count(b"\r") != text.count(b"\r\n") or text.endswith(b"\r") or not is_utf8(text):
            return False
        quote, escape = self.form.quote.encode(), self.form.escape.encode()
        if not quote or quote not in text:
            return True
        return not (escape and escape != quote and escape in text) and _quotes_are_plain(
            text, quote[0], self.form.separator.encode()[0], multi_line=self.form.multi_line
        )

    def _exact(self, block: Block) -> pa.RecordBatch:
        names = self._names
        places = [names.index(name) for name in self.columns.names]
        numbers: list[int] = []
        lines: list[bytes] = []
        rows: list[list[str | None]] = []
        faults: dict[int, tuple[bytes, Fault]] = {}
        for number, line in self._records(block):
            if not line:
                continue
            try:
                fields = fields_of(line.decode(), self.form)
            except UnicodeDecodeError:
                faults[number] = line, Fault(NOT_UTF8)
            except Malformed as error:
                faults[number] = line, Fault(str(error))
            else:
                if len(fields) == len(names):
                    numbers.append(number)
                    lines.append(line)
                    rows.append([fields[place] for place in places])
                else:
                    faults[number] = line, Fault(f"it has {_fields(len(fields))} instead of {len(names)}")
        arrays = []
        for place, column in enumerate(self.columns):
            texts = [row[place] for row in rows]
            array, bad = each_converted(texts, column.type, self.text, trims=True)
            arrays.append(array)
            for position, why in bad.items():
                faults.setdefault(
                    numbers[position],
                    (lines[position], Fault(f"{_shown(texts[position])} is not {why}", column.name)),
                )
        records = pa.RecordBatch.from_arrays(arrays, schema=self.columns) if arrays else without_columns(len(rows))
        records = records.filter(pa.array([number not in faults for number in numbers], pa.bool_()))
        return self._with_faults(records, [(number, *faults[number]) for number in sorted(faults)])

    def _records(self, block: Block) -> Iterator[tuple[int, bytes]]:
        """Yield the text of each record, and the number of its first line in the part."""
        lines = block.lines()
        if not self.form.multi_line:
            yield from ((block.line + number, line) for number, line in enumerate(lines))
            return
        begin = 0
        while begin < len(lines):
            end, quotes = begin, 0
            while end < len(lines):
                quotes += lines[end].count(self.form.quote.encode()) if self.form.quote else 0
                end += 1
                # With an odd number of quotes, the last one opens a field.
                if (quotes % 2 == 0 or self.form.escape) and self._is_whole(b"\n".join(lines[begin:end])):
                    break
            yield block.line + begin, b"\n".join(lines[begin:end])
            begin = end

    def _is_whole(self, record: bytes) -> bool:
        try:
            fields_of(record.decode(errors="replace"), self.form)
        except Unclosed:
            return False
        except Malformed:
            return True
        return True


def _read_as(kind: pa.DataType, has_hex: bool) -> pa.DataType:
    """Return the type with which Arrow reads a column: text if `converted` has to make the values."""
    by_text = pa.types.is_temporal(kind) or (has_hex and pa.types.is_integer(kind))
    return pa.string() if by_text else kind


def _quotes_are_plain(text: bytes, quote: int, separator: int, *, multi_line: bool) -> bool:
    """Return whether each quote begins or ends a whole field, or is part of a doubled quote inside a field."""
    signs = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(signs == quote)
    if len(quotes) % 2:
        return False
    begins, ends = quotes[::2], quotes[1::2]
    before = signs[begins[begins > 0] - 1]
    after = signs[ends[ends < len(signs) - 1] + 1]
    if not (
        np.isin(before, (separator, _LINE_FEED, quote)).all()
        and np.isin(after, (separator, _LINE_FEED, _RETURN, quote)).all()
    ):
        return False
    lines = np.flatnonzero(signs == _LINE_FEED)
    return multi_line or bool((np.searchsorted(lines, begins) == np.searchsorted(lines, ends)).all())


def _none(columns: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], columns)


def _fields(count: int) -> str:
    return f"{count} field{'' if count == 1 else 's'}"


def _shown(text: str | None) -> str:
    return repr(text if text is None or len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
