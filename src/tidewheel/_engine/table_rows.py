"""The rows of reference tables as bytes: Arrow streams, compressed, of bounded size."""

from __future__ import annotations

import pyarrow as pa

from tidewheel._checkpoint.manifest import PinnedTable
from tidewheel._checkpoint.table_files import read_part
from tidewheel._state.bounded_files import FILE_BYTES
from tidewheel._storage import Store

_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def encoded_parts(rows: pa.Table, part_bytes: int = FILE_BYTES) -> list[bytes]:
    """Return the rows as Arrow streams of at most about this size each, before their compression; at least one."""
    count = max(1, -(-rows.nbytes // part_bytes))
    step = max(1, -(-rows.num_rows // count))
    return [_encoded(rows.slice(start, step)) for start in range(0, max(1, rows.num_rows), step)]


def read_table(store: Store, stream: str, pinned: PinnedTable, part: int | None = None) -> pa.Table:
    """Return the rows of a pinned table, or those of one part."""
    files = pinned.files if part is None else pinned.files_of(part)
    return pa.concat_tables(
        pa.ipc.open_stream(read_part(store, stream, file)).read_all() for file in files
    ).combine_chunks()


def read_schema(store: Store, stream: str, pinned: PinnedTable) -> pa.Schema:
    """Return the columns of a pinned table."""
    return pa.ipc.open_stream(read_part(store, stream, pinned.files[0])).schema


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
