"""Find declared columns that the records of JSON files do not have: they may be misspelt."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

import msgspec
import pyarrow as pa

from tidewheel._core.undecodable import UNDECODABLE

_FILES = 10
_BYTES = 256 * 1024
_RECORDS = 100
"""Look for records in up to this many files, and read up to this many records of the first file that has any."""


def absent_columns(files: Iterable[str], columns: Collection[str]) -> list[str]:
    """Return a warning for each column that none of the first records of local files has.

    It is no error: a column may come with later files.
    """
    for file in heapq.nsmallest(_FILES, files):
        records = _first_records(file)
        if records:
            there = list(dict.fromkeys(name for record in records for name in record))
            absent = [name for name in columns if name not in there]
            return [_warning(name, file, len(records), there, columns) for name in absent]
    return []


def _warning(column: str, file: str, records: int, there: list[str], columns: Collection[str]) -> str:
    looked_at = "the first record" if records == 1 else f"none of the first {records} records"
    near = get_close_matches(column, [name for name in there if name not in columns], 1)
    return (
        f"{looked_at} of {file} has {'no' if records == 1 else 'a'} column {column!r}, which the source declares: it is null. "
        f"They have {', '.join(there) or 'no columns'}{f'; did you mean {near[0]!r}?' if near else ''}"
    )


def _first_records(file: str) -> list[dict[str, Any]]:
    """Return the records of the first lines. Invalid lines are skipped here, and rejected when they are read."""
    try:
        with pa.input_stream(file, compression="detect") as stream:
            lines: list[bytes] = stream.read(_BYTES).split(b"\n")
    except (OSError, pa.ArrowException):
        return []
    records = []
    for line in lines[:_RECORDS]:
        try:
            record = msgspec.json.decode(line)
        except UNDECODABLE:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
