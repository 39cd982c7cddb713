"""Times and days in text files, in the forms that Arrow and Spark read alike; any other form is for Spark to judge.

A time is `2026-03-01T10:30:00`, or with a space for the `T`, with up to six digits behind a point, and with a zone (`Z`,
`+01:00`) or, where the zone of the session is UTC, without one. A day is `2026-03-01`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._connectors.direct import ReadBySpark

_DAY = r"^[0-9]{4}-[01][0-9]-[0-3][0-9]"
_LOCAL = _DAY + r"[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_ZONED = _LOCAL + r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])"
_UTC = ("UTC", "Etc/UTC", "GMT", "Z")
"""Names of the zone in which Spark takes a time without a zone as Arrow does. Elsewhere, hours that a clock shows twice or never
are for Spark."""


def has_text(kind: pa.DataType) -> bool:
    """Tell whether values of a column are read as text first, and become times or days here."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def as_text(columns: pa.Schema) -> pa.Schema:
    """Return the columns with text where there are times or days."""
    return pa.schema([pa.field(field.name, pa.string() if has_text(field.type) else field.type) for field in columns])


def with_times(path: str, batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return the records of a file with times and days in place of their texts; `ReadBySpark` where one is of another form."""
    arrays = [_of_texts(path, batch.column(field.name), field) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _of_texts(path: str, texts: pa.Array, field: pa.Field) -> pa.Array:
    if not has_text(field.type):
        return texts
    for pattern, read_as in _forms(field.type):
        if _all_like(pattern, texts):
            try:
                return texts.cast(read_as).cast(field.type)
            except pa.ArrowInvalid as error:  # Such as a 30th of February.
                raise ReadBySpark(f"{path}: the column {field.name!r}: {error}") from error
    if pa.types.is_timestamp(field.type) and _all_like(_LOCAL, texts):
        raise ReadBySpark(
            f"{path} has times without a zone in the column {field.name!r}: Spark takes them for {field.type.tz}"
        )
    raise ReadBySpark(f"{path} has a time or a day of another form than ISO 8601 in the column {field.name!r}")


def _forms(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return what the texts of a column may look like, and the type by which Arrow then reads them as Spark does."""
    if pa.types.is_date32(kind):
        return [(_DAY, kind)]
    local = (_LOCAL, pa.timestamp("us"))
    if kind.tz is None:
        return [local]
    zoned = (_ZONED, pa.timestamp("us", "UTC"))
    return [zoned, local] if kind.tz in _UTC else [zoned]


def _all_like(pattern: str, texts: pa.Array) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern + "$")).as_py() is not False
