"""CSV files and JSON lines to import: read a line at a time, with the types that the step's state and its keys have."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import inspect

from tidewheel._connectors.files.extensions import format_by_name, listed_files
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._imports.columns import RECORDS, StateColumns, alone, type_info, type_name
from tidewheel._imports.keys import ImportedKeys
from tidewheel._values.shape import VALUE
from tidewheel.errors import ConfigError, StateError

CheckNames = Callable[[Mapping[str, None], str], None]
"""Refuses column names that do not fit; the second argument names the file."""

_Cell = Callable[[str], Any]
_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|nan)", re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}
_AS_TEXT = (
    inspect.StrType,
    inspect.BytesType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.DecimalType,
)
"""Types whose values are made of text when the whole state is checked."""


def _own_csv(longest: int) -> Any:
    """Return a copy of Python's CSV module with its own field size limit, which is otherwise global to the process."""
    spec = importlib.util.find_spec(csv.reader.__module__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.field_size_limit(longest)
    return module


_CSV = _own_csv(16 * 1024 * 1024)
"""A value that is longer is most likely one whose quote is not closed, and the rest of the file would be read into memory."""


def text_format(path: str) -> str | None:
    """Return "csv" or "json" for such a file, or a folder of such files; None: by its name it is neither."""
    if not os.path.isdir(path):
        found = format_by_name(os.path.basename(path))
        return found if found in ("csv", "json") else None
    formats = {format_by_name(os.path.basename(file)) for file in listed_files(path)}
    if len(formats) > 1 and formats & {"csv", "json"}:
        names = ", ".join(sorted(str(each) for each in formats if each))
        raise ConfigError(f"the folder {path} has files of several formats: {names}; import one file after the other")
    return next(iter(formats & {"csv", "json"}), None)


class TextRows(ABC):
    """The rows of one file, or of those of a folder in the order of their names: pairs of key and value."""

    def __init__(self, path: str, columns: StateColumns, keys: ImportedKeys, check: CheckNames) -> None:
        """Take the wanted columns, the keys, and the function that checks the names of the columns."""
        self.path, self.columns, self.keys, self.check = path, columns, keys, check
        self.key = columns.key
        self.file, self.line = path, 0

    @property
    def place(self) -> str:
        """The file and the line that was read last."""
        return f"{self.file}, line {self.line}"

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for file in self._files():
            self.file, self.line = file, 0
            try:
                with _opened(self.file) as text:
                    yield from self._rows(text)
            except FileNotFoundError:
                raise ConfigError(f"there is no file {self.file}") from None
            except UnicodeDecodeError as error:
                raise ConfigError(
                    f"{self.file} has bytes that are not UTF-8 after line {self.line} ({error.reason}); write it as UTF-8"
                ) from None
            except (OSError, pa.ArrowException) as error:
                raise ConfigError(f"could not read {self.file} after line {self.line}: {error}") from None

    @abstractmethod
    def _rows(self, text: io.TextIOWrapper) -> Iterator[tuple[Any, Any]]: ...

    def _files(self) -> list[str]:
        if not os.path.isdir(self.path):
            return [self.path]
        files = sorted(listed_files(self.path))
        nested = next((file for file in files if os.path.dirname(file) != os.path.normpath(self.path)), None)
        if nested is not None:
            raise ConfigError(
                f"{nested} is in a folder that is a column; import from Parquet, or one file after the other"
            )
        return files

    def _wrong(self, what: str) -> StateError:
        return StateError(f"{self.place}: {what}")


class CsvRows(TextRows):
    """Lines of a CSV file, after a first line with the names of the columns. The separator of .tsv files is a tab."""

    def __init__(self, path: str, columns: StateColumns, keys: ImportedKeys, check: CheckNames, expected: Any) -> None:
        """Take also the type of the step's states, which the cells do not show."""
        super().__init__(path, columns, keys, check)
        self._whole, self._record = type_info(expected), alone(expected)
        self.numbers_only: str | None = None
        """The first key, if the type of the keys is unknown and all keys look like numbers."""
        self._texts = False
        self._key_of = _cell(inspect.type_info(keys.type or str))

    def _rows(self, text: io.TextIOWrapper) -> Iterator[tuple[Any, Any]]:
        separator = "\t" if ".tsv" in os.path.basename(self.file).lower() else ","
        lines = _CSV.reader(text, delimiter=separator, strict=True)
        try:
            names = next(lines, None)
            self.line = 1
            if not names:
                raise self._wrong("there is no first line with the names of the columns")
            yield from self._cells(lines, names)
        except _CSV.Error as error:
            if "field limit" in str(error):
                self.line += 1
                raise self._wrong(
                    f"a value that begins here has more than {_CSV.field_size_limit():,} characters; close its quote, or import "
                    "such long values from JSON lines or Parquet"
                ) from None
            self.line = lines.line_num
            raise self._wrong(f'it is not valid CSV: {error}; quote values as in "a ""quoted"" word"') from None

    def _cells(self, lines: Any, names: list[str]) -> Iterator[tuple[Any, Any]]:
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise self._wrong(f"the column {twice!r} is named twice; the first line names the columns")
        fields = self.columns.fields(names, self.place)
        self.check(dict.fromkeys(fields.values()), self.file)
        plain = list(fields.values()) == [VALUE]
        cells = [self._cell_of(name, plain) if name in fields else None for name in names]
        at = names.index(self.key)
        for values in lines:
            self.line = lines.line_num
            if not values:
                continue
            if len(values) != len(names):
                raise self._wrong(
                    f"it has {len(values)} values, and the first line names {len(names)} columns ({', '.join(names)}); "
                    "quote a value with a separator in it"
                )
            key = self._read(self._key_of, values[at], self.key)
            self._check_key(values[at])
            record = {
                fields[name]: self._read(cell, value, name)
                for name, cell, value in zip(names, cells, values, strict=True)
                if cell is not None
            }
            yield key, record[VALUE] if plain else record

    def _check_key(self, text: str) -> None:
        if not text:
            raise self._wrong(f"the column {self.key!r} has no key; take the line out, or give it a key")
        if self.keys.type is None and not self._texts:
            self._texts = _FLOAT.fullmatch(text) is None and text.lower() not in _BOOLEANS
            self.numbers_only = None if self._texts else self.numbers_only or text

    def _read(self, cell: _Cell, text: str, column: str) -> Any:
        try:
            return cell(text)
        except ValueError as error:
            raise self._wrong(f"the column {column!r} has {text!r}, which is not {error}; correct the line") from None

    def _cell_of(self, column: str, plain: bool) -> _Cell:
        info, record = self._whole, self._record
        if isinstance(record, RECORDS) and not plain:
            info = next(field.type for field in record.fields if field.encode_name == column)
        elif isinstance(record, inspect.DictType) and not plain:
            info = record.value_type
        try:
            return _cell(info)
        except TypeError:
            declared = "is not known" if isinstance(info, inspect.AnyType) else f"is {type_name(info)}"
            raise StateError(
                f"{self.file} is a CSV file, whose cells are all text, and the type of the column {column!r} {declared}: "
                "declare the type of the state (state=, or default=), plain for each column, or import JSON lines or Parquet"
            ) from None


class JsonRows(TextRows):
    """One JSON object per line: the field of the key, and the field `value` or the fields of the state."""

    def _rows(self, text: io.TextIOWrapper) -> Iterator[tuple[Any, Any]]:
        decode = msgspec.json.Decoder().decode
        checked: set[tuple[str, ...]] = set()
        for self.line, line in enumerate(text, 1):
            if not line.strip():
                continue
            try:
                row = decode(line)
            except UNDECODABLE as error:
                raise self._wrong(
                    f"it is not valid JSON ({error}); a file of JSON lines has an object on each line"
                ) from None
            if not isinstance(row, dict):
                raise self._wrong(f'it is {type(row).__name__}, not an object such as {{"{self.key}": …, "value": …}}')
            names = tuple(row)
            fields = self.columns.fields(names, self.place)
            if names not in checked:
                self.check(dict.fromkeys(fields.values()), self.place)
                checked.add(names)
            record = {name: row[column] for column, name in fields.items()}
            yield _frozen(row[self.key]), record[VALUE] if list(record) == [VALUE] else record


def _frozen(key: Any) -> Any:
    """Make a list, or an object as a struct is exported, the tuple that the key is."""
    if isinstance(key, dict):
        key = list(key.values())
    return tuple(map(_frozen, key)) if isinstance(key, list) else key


@contextlib.contextmanager
def _opened(path: str) -> Iterator[io.TextIOWrapper]:
    """Open a file as text, decompressed as its name says."""
    with (
        pa.input_stream(path, compression="detect") as stream,
        io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig", newline="") as text,
    ):
        yield text


def _cell(info: inspect.Type) -> _Cell:
    """Return a function that parses a cell; it raises `ValueError` with the type's name. `TypeError`: no cell can be parsed."""
    if isinstance(info, inspect.UnionType):
        others = tuple(each for each in info.types if not isinstance(each, inspect.NoneType))
        if len(others) < len(info.types):
            some = _cell(others[0] if len(others) == 1 else inspect.UnionType(others))
            return lambda text: some(text) if text else None
        if {type(each) for each in others} == {inspect.IntType, inspect.FloatType}:
            return _number
        raise TypeError(info)
    if isinstance(info, inspect.EnumType | inspect.LiteralType):
        values = info.values if isinstance(info, inspect.LiteralType) else [each.value for each in info.cls]
        kinds = {type(value) for value in values}
        if len(kinds) == 1 and kinds <= {str, int}:
            return _integer if kinds == {int} else str
        raise TypeError(info)
    if isinstance(info, _AS_TEXT):
        return str
    made = {inspect.IntType: _integer, inspect.FloatType: _floating, inspect.BoolType: _boolean}.get(type(info))
    if made is None:
        raise TypeError(info)
    return made


def _integer(text: str) -> int:
    if _INT.fullmatch(text) is None:
        raise ValueError("int")
    return int(text)


def _floating(text: str) -> float:
    if _FLOAT.fullmatch(text) is None:
        raise ValueError("float")
    return float(text)


def _number(text: str) -> int | float:
    return int(text) if _INT.fullmatch(text) else _floating(text)


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise ValueError("bool (true or false)")
    return value
