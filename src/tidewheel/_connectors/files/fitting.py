"""Map the columns of a file to those of the source: by name, cast if no value can change, null if absent."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._connectors.files.arrow_types import fits
from tidewheel._values.columns import is_encoded_text, without_columns
from tidewheel.errors import StepError


class Fitting:
    """The columns of one file and those of the source. An error names the file and the column."""

    def __init__(self, file: str, present: pa.Schema, columns: pa.Schema, utc: Collection[str] = ()) -> None:
        """Take the columns of the file and of the source; `utc` names those whose times without a zone are in UTC."""
        self.file, self.present, self.columns, self.utc = file, present, columns, utc
        self.names = {field.name: self._name(field.name) for field in columns}
        """By column of the source, the name that it has in the file; None where the file lacks it."""
        for field in columns:
            name = self.names[field.name]
            if name is not None and not self._fits(name, field):
                raise StepError(
                    f"{file} has {present.field(name).type} in the column {name!r}, and the source has {field.type}; write the "
                    "file with the types of the source, or change the source's schema"
                )

    def _name(self, name: str) -> str | None:
        """Return the name of a column in the file: as it is, or in another case."""
        exact = self.present.names.count(name)
        same = [other for other in self.present.names if other.lower() == name.lower()]
        if exact > 1 or (exact == 0 and len(same) > 1):
            raise StepError(
                f"{self.file} has several columns that may be {name!r}: {', '.join(same)}; give them other names"
            )
        return name if exact else next(iter(same), None)

    def _fits(self, name: str, field: pa.Field) -> bool:
        given = self.present.field(name).type
        if name in self.utc and pa.types.is_timestamp(given) and pa.types.is_timestamp(field.type):
            return True
        return fits(given, field.type)

    def wanted(self, only: Collection[str] | None) -> list[str]:
        """Return the names of the columns to read from the file, for some columns of the source or for all (None)."""
        return [name for column, name in self.names.items() if name is not None and (only is None or column in only)]

    def fitted(self, batch: pa.RecordBatch, only: Collection[str] | None, encoded: str | None = None) -> pa.RecordBatch:
        """Return records of the file in the columns of the source, or in some of them.

        The text column `encoded` stays dictionary-encoded if it is.
        """
        there: Mapping[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays, fields = [], []
        for field in self.columns:
            if only is None or field.name in only:
                name = self.names[field.name]
                if name is not None and field.name == encoded and is_encoded_text(there[name].type):
                    field = field.with_type(there[name].type)
                    array = there[name]
                else:
                    array = pa.nulls(batch.num_rows, field.type) if name is None else self._cast(there[name], field)
                fields.append(field)
                arrays.append(array)
        if not fields:
            return without_columns(batch.num_rows)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, self.columns.metadata))

    def _cast(self, array: pa.Array, field: pa.Field) -> pa.Array:
        array = _plain(array)
        if array.type == field.type:
            return array
        try:
            return array.cast(field.type)
        except pa.ArrowInvalid as error:
            raise StepError(
                f"{self.file}: a value of the column {field.name!r}, of type {array.type}, does not fit the source's "
                f"{field.type}: {error}"
            ) from error


def _plain(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if isinstance(column, pa.DictionaryArray):
        return column.dictionary_decode()
    if isinstance(column, pa.RunEndEncodedArray):
        return pc.run_end_decode(column)
    return column
