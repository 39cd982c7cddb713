"""How the columns of one file become those of the source: by name, cast where no value can change, null where absent."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from tidewheel._connectors.direct import ReadBySpark


class Fitting:
    """The columns of one file beside those of the source; `ReadBySpark` where Arrow and Spark may differ about them."""

    def __init__(self, path: str, present: pa.Schema, columns: pa.Schema) -> None:
        """Take the columns of the file and those of the source; names may differ in case."""
        self.path, self.present, self.columns = path, present, columns
        folded = {name.lower(): name for name in present.names}
        if len(folded) < len(present.names):
            raise ReadBySpark(f"{path} has columns whose names differ in case alone")
        self.names = [
            field.name if field.name in present.names else folded.get(field.name.lower()) for field in columns
        ]
        """The name that each column of the source has in the file, None where the file lacks it."""

    def of(self, only: Collection[str] | None) -> Fitting:
        """Return the same for some columns of the source; None: for all."""
        return self if only is None else Fitting(self.path, self.present, _some(self.columns, only))

    @property
    def wanted(self) -> list[str]:
        """The names of the columns to read from the file."""
        return [name for name in self.names if name is not None]

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return records of the file in the columns of the source."""
        arrays = [
            pa.nulls(batch.num_rows, field.type) if name is None else self._cast(batch.column(name), field)
            for name, field in zip(self.names, self.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns)

    def _cast(self, array: pa.Array, field: pa.Field) -> pa.Array:
        if array.type == field.type:
            return array
        try:
            return array.cast(field.type)
        except pa.ArrowInvalid as error:
            raise ReadBySpark(
                f"{self.path}: the column {field.name!r} is of type {array.type}, the source's is {field.type}: {error}"
            ) from error


def _some(columns: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the columns of these names, in the order in which they stand."""
    return pa.schema([field for field in columns if field.name in names], columns.metadata)


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether every value of one type is the same value of the other, for Arrow and for Spark."""
    return bool(
        (
            pa.types.is_signed_integer(given)
            and pa.types.is_signed_integer(wanted)
            and given.bit_width < wanted.bit_width
        )
        or (pa.types.is_float32(given) and pa.types.is_float64(wanted))
        or (pa.types.is_large_string(given) and pa.types.is_string(wanted))
        or (pa.types.is_large_binary(given) and pa.types.is_binary(wanted))
    )
