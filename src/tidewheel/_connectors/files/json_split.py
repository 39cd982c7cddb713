"""Splits of JSON-lines files: Arrow parses the blocks that it reads by our rules; all other lines are parsed here."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
import pyarrow.types as kinds

from tidewheel._connectors.files.line_split import NOT_UTF8, Fault, LineSplit, NotPlain
from tidewheel._connectors.files.lines import Block, is_utf8
from tidewheel._connectors.files.text_values import PLAIN, BadValue, TextForm, converted, expected, one_converted
from tidewheel._values.columns import without_columns

DEEPEST = 200
"""The maximum nesting depth of values."""
_NOT_JSON = re.compile(rb"[:\[,]\s*-?(?:NaN|Inf)")
"""Numbers that Arrow accepts although they are not valid JSON."""
_OPEN_OBJECT, _OPEN_LIST, _CLOSE_OBJECT, _LINE_FEED, _RETURN = b"{[}\n\r"
_SHOWN = 100


@dataclass(frozen=True)
class JsonSplit(LineSplit):
    """Lines with a JSON object each; with `multi_line` the file is one object, or a list of them."""

    text: TextForm = field(default=PLAIN)
    multi_line: bool = False

    @property
    def by_line(self) -> bool:
        return not self.multi_line

    def read(self) -> Iterator[pa.RecordBatch]:
        if not self.multi_line:
            yield from super().read()
            return
        text = b"".join(block.text for block in self._blocks())
        if text.strip():
            yield self.partitions.added(self._whole(text))

    def _fast(self, block: Block) -> pa.RecordBatch:
        text, columns = block.text, self.columns
        lines = _plain_lines(text) if columns.names and all(_is_fast(field.type) for field in columns) else None
        if lines is None:
            raise NotPlain
        texts = pa.schema([pa.field(field.name, _read_as(field.type)) for field in columns])
        reading = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        parsing = arrow_json.ParseOptions(explicit_schema=texts, unexpected_field_behavior="ignore")
        try:
            table = arrow_json.read_json(pa.BufferReader(text), reading, parsing)
            arrays = [self._value(table.column(field.name), field) for field in columns]
        except (pa.ArrowException, BadValue) as error:
            raise NotPlain from error
        if table.num_rows != lines:
            raise NotPlain  # A line has several objects.
        return pa.RecordBatch.from_arrays(arrays, schema=columns)

    def _value(self, column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
        array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        if not _is_finite(array):
            raise NotPlain
        return array if array.type == field.type else converted(array, field.type, self.text)

    def _exact(self, block: Block) -> pa.RecordBatch:
        found = []
        for number, line in enumerate(block.lines()):
            if line.strip(b" \t\r"):
                found.append((block.line + number, line))
        return self._records(found)

    def _whole(self, text: bytes) -> pa.RecordBatch:
        """Return the records of a file that is one object or a list of them."""
        try:
            value = _decoded(text)
        except BadValue as error:
            return self._batch([[] for _ in self.columns], [(0, text, Fault(str(error)))])
        records = value if isinstance(value, list) else [value]
        return self._of_values([(number, None, record) for number, record in enumerate(records)], [])

    def _records(self, lines: list[tuple[int, bytes]]) -> pa.RecordBatch:
        values: list[tuple[int, bytes | None, Any]] = []
        faults: list[tuple[int, bytes, Fault]] = []
        for number, line in lines:
            try:
                values.append((number, line, _decoded(line)))
            except BadValue as error:
                faults.append((number, line, Fault(str(error))))
        return self._of_values(values, faults)

    def _of_values(
        self, values: list[tuple[int, bytes | None, Any]], faults: list[tuple[int, bytes, Fault]]
    ) -> pa.RecordBatch:
        rows: list[list[Any]] = []
        for number, line, value in values:
            name = None
            try:
                if not isinstance(value, dict):
                    raise BadValue(f"it is {_kind(value)}, not an object")
                row = []
                for column in self.columns:
                    name = column.name
                    row.append(_value_of(value.get(name), column.type, self.text))
                rows.append(row)
            except BadValue as error:
                faults.append((number, _encoded(value) if line is None else line, Fault(str(error), name)))
        faults.sort(key=lambda fault: fault[0])
        if not self.columns.names:
            return self._with_faults(without_columns(len(rows)), faults)
        return self._batch([list(column) for column in zip(*rows, strict=True)] or [[] for _ in self.columns], faults)


def _plain_lines(text: bytes) -> int | None:
    """Return the number of lines if Arrow finds the same objects as a line-by-line parser; otherwise None.

    Each line must begin with a brace, because Arrow crashes if the first value is null, and end with a brace, so that no
    object spans several lines. Text that is nested too deeply would end the process.
    """
    signs = np.frombuffer(text, np.uint8)
    if b"\0" in text or ((_has(signs, b"NaN") or _has(signs, b"Inf")) and _NOT_JSON.search(text)):
        return None
    if not is_utf8(text):
        return None
    ends = np.flatnonzero(signs == _LINE_FEED)
    if text[-1] != _LINE_FEED:
        ends = np.append(ends, len(signs))
    begins = np.append(0, ends[:-1] + 1)
    if (begins == ends).any():
        return None
    last = signs[ends - 1]
    if (last == _RETURN).any():
        last = np.where(last == _RETURN, signs[np.maximum(ends - 2, 0)], last)
    if not ((signs[begins] == _OPEN_OBJECT).all() and (last == _CLOSE_OBJECT).all()):
        return None
    opens = signs == _OPEN_OBJECT
    if b"[" in text:
        opens |= signs == _OPEN_LIST
    if np.count_nonzero(opens) - len(ends) < DEEPEST:
        return len(ends)
    deepest = np.bincount(np.searchsorted(ends, np.flatnonzero(opens))).max()
    return len(ends) if deepest < DEEPEST else None


def _has(signs: npt.NDArray[np.uint8], word: bytes) -> bool:
    """Return whether a word of three signs is there; for words that are rare, this is faster than a search for bytes."""
    first = np.flatnonzero(signs[:-2] == word[0])
    return bool(((signs[first + 1] == word[1]) & (signs[first + 2] == word[2])).any())


def _is_fast(kind: pa.DataType) -> bool:
    """Return whether Arrow reads values of this type by our rules, or as text that `converted` can convert."""
    if kinds.is_struct(kind):
        return all(
            _is_fast_leaf(child.type) or (kinds.is_nested(child.type) and _is_fast(child.type)) for child in kind
        )
    if kinds.is_list(kind):
        return _is_fast_leaf(kind.value_type) or (kinds.is_nested(kind.value_type) and _is_fast(kind.value_type))
    return _is_fast_leaf(kind) or kinds.is_timestamp(kind) or kinds.is_date32(kind)


def _is_fast_leaf(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_signed_integer(kind)
        or kinds.is_float32(kind)
        or kinds.is_float64(kind)
        or kinds.is_string(kind)
        or kinds.is_boolean(kind)
    )


def _read_as(kind: pa.DataType) -> pa.DataType:
    return pa.string() if kinds.is_timestamp(kind) or kinds.is_date32(kind) else kind


def _is_finite(array: pa.Array) -> bool:
    if kinds.is_floating(array.type):
        return pc.all(pc.is_finite(array)).as_py() is not False
    if kinds.is_list(array.type):
        return _is_finite(array.flatten())
    return not kinds.is_struct(array.type) or all(map(_is_finite, array.flatten()))


class _Number(str):
    """A number of a JSON text, as it is written."""

    __slots__ = ()


def _no_constant(name: str) -> Any:
    raise BadValue(f"{name} is no JSON")


_decoder = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_no_constant)


def _decoded(line: bytes) -> Any:
    """Return the value of a JSON text, with numbers as they are written; `BadValue` if it is not one whole value."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise BadValue(NOT_UTF8) from None
    if text.count("{") + text.count("[") >= DEEPEST and _depth(text) > DEEPEST:
        raise BadValue(f"its values are more than {DEEPEST} deep inside of each other")
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise BadValue(f"it is not one JSON value: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise BadValue("its values are too deep inside of each other") from None


def _depth(text: str) -> int:
    """Return the nesting depth of a JSON text, ignoring quoted texts."""
    depth = deepest = 0
    for sign in re.findall(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]', text, re.DOTALL):
        if sign in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "}]":
            depth -= 1
    return deepest


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, _Number):
        return "a number"
    return {str: "a text", bool: "a boolean", list: "a list", dict: "an object"}[type(value)]


def _encoded(value: Any) -> bytes:
    """Return a decoded value as JSON again."""
    if isinstance(value, dict):
        return b"{" + b",".join(_encoded(name) + b":" + _encoded(item) for name, item in value.items()) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(_encoded, value)) + b"]"
    return value.encode() if isinstance(value, _Number) else json.dumps(value).encode()


def _value_of(value: Any, kind: pa.DataType, form: TextForm) -> Any:
    """Convert a value to one that Arrow accepts for a column; raise `BadValue` if it does not fit."""
    if value is None:
        return None
    if kinds.is_struct(kind) and isinstance(value, dict):
        return {child.name: _value_of(value.get(child.name), child.type, form) for child in kind}
    if kinds.is_map(kind) and isinstance(value, dict):
        return [
            (_key_of(name, kind.key_type, form), _value_of(item, kind.item_type, form)) for name, item in value.items()
        ]
    if kinds.is_list(kind) and isinstance(value, list):
        return [_value_of(item, kind.value_type, form) for item in value]
    if kinds.is_boolean(kind) and isinstance(value, bool):
        return value
    if isinstance(value, _Number):
        if kinds.is_signed_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
            return _of_text(value, kind, form)
    elif isinstance(value, str):
        return _of_string(value, kind, form)
    raise BadValue(f"{_shown(value)} is {_kind(value)}, not {_expected(kind, form)}")


def _of_string(value: str, kind: pa.DataType, form: TextForm) -> Any:
    if kinds.is_string(kind):
        return _text(value)
    if kinds.is_binary(kind):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise BadValue(f"{_shown(value)} is not base64") from None
    if kinds.is_decimal(kind) or kinds.is_timestamp(kind) or kinds.is_date32(kind):
        return _of_text(_text(value), kind, form)
    raise BadValue(f"{_shown(value)} is a text, not {_expected(kind, form)}")


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadValue(f"{_shown(value)} has half of a surrogate pair, which is not valid text") from None
    return value


def _key_of(name: str, kind: pa.DataType, form: TextForm) -> Any:
    return _text(name) if kinds.is_string(kind) else _of_text(_text(name), kind, form)


def _of_text(text: str, kind: pa.DataType, form: TextForm) -> Any:
    try:
        return one_converted(str(text), kind, form)
    except BadValue as error:
        raise BadValue(f"{_shown(text)} is not {error}") from None


def _expected(kind: pa.DataType, form: TextForm) -> str:
    if kinds.is_struct(kind) or kinds.is_map(kind):
        return "an object"
    if kinds.is_list(kind):
        return "a list"
    return "text in base64" if kinds.is_binary(kind) else expected(kind, form)


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) and not isinstance(value, _Number) else _encoded(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
