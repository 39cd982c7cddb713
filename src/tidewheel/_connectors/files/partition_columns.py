"""Columns that are folders: the value of `day` of all records in `day=2025-01-31/` is that day."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from tidewheel._connectors.files.hive import NULL
from tidewheel._connectors.files.text_values import BadValue, converted, each_converted
from tidewheel.errors import StepError


@dataclass(frozen=True)
class PartitionColumns:
    """The columns of the records of one file that its folders give."""

    columns: tuple[pa.Field, ...] = ()
    values: tuple[Any, ...] = ()
    order: tuple[str, ...] = ()
    """The names of all columns of the source, in their order."""

    @classmethod
    def of(cls, file: str, path: str, schema: pa.Schema, names: Collection[str]) -> PartitionColumns:
        """Take the values of the partition columns `names` of a source from the relative path of one of its files."""
        columns = [field for field in schema if field.name in names]
        if not columns:
            return cls()
        texts = folder_values(path)
        values = []
        for field in columns:
            if field.name not in texts:
                raise StepError(
                    f"{file} is in no folder {field.name}=…, and the other files of the source are; move it to one"
                )
            found, bad = each_converted([texts[field.name]], field.type)
            if bad:
                raise StepError(f"{file}: {texts[field.name]!r} in the name of its folder is not {bad[0]}")
            values.append(found[0])
        return cls(tuple(columns), tuple(values), tuple(schema.names))

    def added(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records with these columns, all in the order of the source."""
        if not self.columns:
            return records
        arrays = dict(zip(records.schema.names, records.columns, strict=True))
        for field, value in zip(self.columns, self.values, strict=True):
            arrays[field.name] = pa.repeat(value, records.num_rows)
        names = [name for name in self.order if name in arrays]
        names += [name for name in arrays if name not in self.order]
        return pa.RecordBatch.from_arrays([arrays[name] for name in names], names)


def folder_values(path: str) -> dict[str, str | None]:
    """Return the columns that the folders of a relative path name, as text.

    >>> folder_values("day=2025-01-31/from=a%2Fb/part-0.json")
    {'day': '2025-01-31', 'from': 'a/b'}
    """
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign and name:
            found[unquote(name)] = None if value == NULL else unquote(value)
    return found


def inferred(paths: Iterable[str]) -> dict[str, pa.DataType]:
    """Return the columns that the folders of relative paths name, of the narrowest type that takes all values.

    Whole numbers are `int` or `long`, days are `date`, all else is text, as with Spark.
    """
    texts: dict[str, set[str]] = {}
    for path in paths:
        for name, text in folder_values(path).items():
            texts.setdefault(name, set()).update(() if text is None else (text,))
    return {name: _narrowest(sorted(values)) for name, values in texts.items()}


def _narrowest(texts: Sequence[str]) -> pa.DataType:
    for kind in (pa.int32(), pa.int64(), pa.date32()):
        try:
            converted(pa.array(texts, pa.string()), kind)
        except BadValue:
            continue
        return kind
    return pa.string()
