"""Folders named by the values of columns, such as `day=2025-01-31/`, as in Hive and Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidewheel._core.text import shortened
from tidewheel.errors import StepError

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(0x20)}
_POSITION = "tidewheel position"
_LONGEST_NAME, _LONGEST_PATH = 255, 900
"""How many bytes a folder's name may have on all usual file systems, and a path below the sink's folder in object stores."""


def folder_of(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return the folder for rows with these values; a `StepError` where its name would be too long.

    >>> folder_of(["day", "from"], [datetime.date(2025, 1, 31), "a/b"])
    'day=2025-01-31/from=a%2Fb'
    """
    folders = [f"{_escaped(name)}={_name(value)}" for name, value in zip(names, values, strict=True)]
    path = "/".join(folders)
    if len(path.encode()) > _LONGEST_PATH or any(len(folder.encode()) > _LONGEST_NAME for folder in folders):
        raise StepError(
            f"the values of {', '.join(names)} are too long for the names of folders: {shortened(path, 100)}. A folder's name, "
            f"such as {names[0]}=…, has at most {_LONGEST_NAME} bytes, and all of them together {_LONGEST_PATH}"
        )
    return path


def split(columns: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[list[Any], pa.RecordBatch]]:
    """Yield each combination of values, and the rows that have it, in their order and without these columns."""
    table = pa.table(
        [*(columns.column(name) for name in names), pa.array(range(columns.num_rows), pa.int64())], [*names, _POSITION]
    )
    groups = table.group_by(list(names)).aggregate([(_POSITION, "list")]).to_pydict()
    rest = columns.drop_columns(list(names))
    for *values, positions in zip(*(groups[name] for name in names), groups[f"{_POSITION}_list"], strict=True):
        # Threads may hand positions over in another order than the rows'.
        yield values, rest.take(pa.array(sorted(positions), pa.int64()))


def text_of(value: Any) -> str | None:
    """Return the value of a partition as a text; None for a null and for an empty text."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return str(value)


def _name(value: Any) -> str:
    text = text_of(value)
    return NULL if text is None else _escaped(text)


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)
