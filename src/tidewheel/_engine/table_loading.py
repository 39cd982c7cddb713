"""Load a reference table: check its rows, order them, and divide a large table into parts, without holding it in memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from xxhash import xxh3_128

from tidewheel._connectors.tables.table import Table
from tidewheel._engine.table_rows import encoded_parts
from tidewheel._values.keyed_table import hashes_of
from tidewheel._values.parted_table import by_part, part_of_each

WHOLE_BYTES = 256 << 20
"""Up to this size, a table is one part, and the driver holds it in memory while it loads it."""
_MOST_PARTS = 256


class Unreadable(Exception):
    """The source of a table has raised an error, or its rows could not be written to the driver's disk."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass
class LoadedTable:
    """Rows that were read from the source and that no commit has yet, encoded."""

    schema: pa.Schema
    rows: int
    digest: str
    parts: list[list[Callable[[], bytes]]]
    """For each part, the functions that return its files. Parts of a large table are on disk."""


def load_table(table: Table, spark: Any, n_shards: int) -> LoadedTable:
    """Load a table. Raise `Unreadable` for an error of its source, and a `ConfigError` if the rows are not a table."""
    pieces = _read(table, spark)
    first: list[pa.Table] = []
    for piece in pieces:
        first.append(piece)
        if sum(each.nbytes for each in first) > WHOLE_BYTES:
            return _divided(table, first, pieces, min(n_shards, _MOST_PARTS))
    rows = _typed(pa.concat_tables(first), table.schema)
    return _encoded(table, [table.checked(rows)], lambda name, data: lambda: data)


def _typed(rows: pa.Table, known: pa.Schema | None) -> pa.Table:
    """Return a table without rows in the types of its version before, as far as only values would show its types."""
    if rows.num_rows or known is None:
        return rows
    fields = (
        known.field(each.name) if pa.types.is_null(each.type) and each.name in known.names else each
        for each in rows.schema
    )
    return rows.cast(pa.schema(list(fields)))


def _read(table: Table, spark: Any) -> Iterator[pa.Table]:
    """Yield the rows in pieces with the same columns, at least one."""
    try:
        yield from table.source.pieces(spark)
    except Exception as error:
        raise Unreadable(error) from error


def _divided(table: Table, first: list[pa.Table], others: Iterator[pa.Table], parts: int) -> LoadedTable:
    """Write the rows to a file for each part, and encode one part after the other."""
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="tidewheel-table-")
        paths = [Path(folder, str(part)) for part in range(parts)]
        return _encoded(table, _parts(table, first, others, paths), partial(_written, Path(folder)), folder)
    except OSError as error:  # Such as a full disk: no fault of the rows either.
        shutil.rmtree(folder, ignore_errors=True)
        raise Unreadable(error) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _parts(table: Table, first: list[pa.Table], others: Iterator[pa.Table], paths: list[Path]) -> Iterator[pa.Table]:
    """Yield the rows of each part."""
    with ExitStack() as opened:
        files = [opened.enter_context(pa.OSFile(str(path), "wb")) for path in paths]
        writers = [opened.enter_context(pa.ipc.new_stream(file, first[0].schema)) for file in files]
        before = 0
        for piece in _one_by_one(first, others):
            hashes = hashes_of(table.checked_keys(piece, before))
            for part, places in by_part(part_of_each(hashes, len(paths))):
                writers[part].write_table(piece.take(pa.array(places)))
            before += piece.num_rows
    for path in paths:
        with pa.OSFile(str(path)) as file:
            rows = pa.ipc.open_stream(file).read_all()
        path.unlink()
        yield table.checked(rows)


def _one_by_one(first: list[pa.Table], others: Iterator[pa.Table]) -> Iterator[pa.Table]:
    while first:
        yield first.pop(0)
    yield from others


def _encoded(
    table: Table,
    parts: Iterable[pa.Table],
    keep: Callable[[str, bytes], Callable[[], bytes]],
    folder: str | None = None,
) -> LoadedTable:
    """Encode checked parts; `keep` takes the bytes of a file and returns the function that returns them."""
    digest = xxh3_128(repr(table.key).encode())
    loaded = LoadedTable(pa.schema([]), 0, "", [])
    for number, rows in enumerate(parts):
        loaded.schema, loaded.rows = rows.schema, loaded.rows + rows.num_rows
        encoded = encoded_parts(rows)
        for data in encoded:
            digest.update(data)
        loaded.parts.append([keep(f"{number}-{place}", data) for place, data in enumerate(encoded)])
    loaded.digest = digest.hexdigest()
    if folder is not None:
        weakref.finalize(loaded, shutil.rmtree, folder, ignore_errors=True)
    return loaded


def _written(folder: Path, name: str, data: bytes) -> Callable[[], bytes]:
    path = folder / name
    path.write_bytes(data)
    return path.read_bytes
