"""Statistics of a data file, from the footer of the file, in the form that a Delta log stores. Readers skip files by them."""

from __future__ import annotations

import contextlib
import datetime
from typing import Any

import msgspec

_COLUMNS = 32
"""How many columns have statistics, as Delta writers do by default."""
_TEXT = 32
_LAST = "\U0010ffff"


def statistics_of(metadata: Any) -> bytes:
    """Return the statistics of a file, given its `parquet.FileMetaData`: of columns that are not nested, the first 32 of them."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for place in range(min(metadata.num_columns, _COLUMNS)):
        column = metadata.schema.column(place)
        if column.path != column.name or column.max_repetition_level:
            continue
        found = [group.column(place).statistics for group in groups]
        if any(each is None or not each.has_null_count for each in found):
            continue
        nulls[column.name] = sum(each.null_count for each in found)
        bounds = [each for each in found if each.num_values]
        if bounds and all(each.has_min_max for each in bounds):
            with contextlib.suppress(OverflowError):  # A time after the year 9999, or rounded up to it, has no text.
                lower, upper = _lower(min(each.min for each in bounds)), _upper(max(each.max for each in bounds))
                if lower is not None and upper is not None:
                    least[column.name], most[column.name] = lower, upper
    return msgspec.json.encode(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    )


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TEXT]
    if isinstance(value, datetime.datetime):
        return _moment(value)
    return _plain(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        # No text that begins like this is after the last code point.
        return value if len(value) <= _TEXT else value[:_TEXT] + _LAST
    if isinstance(value, datetime.datetime):
        # Readers compare milliseconds: round up.
        return _moment(value + datetime.timedelta(microseconds=-value.microsecond % 1000))
    return _plain(value)


def _plain(value: Any) -> Any:
    """Return integers and dates; None for others. A float may be NaN, which no bound covers, and JSON rounds decimals."""
    if isinstance(value, bool):
        return None
    return value if isinstance(value, (int, datetime.date)) else None


def _moment(value: datetime.datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
