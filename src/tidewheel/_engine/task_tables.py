"""The reference tables of a task: copied to the host once, mapped into memory, and cached in the process."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pyarrow as pa

from tidewheel._checkpoint.manifest import PinnedTable
from tidewheel._checkpoint.names import folder
from tidewheel._connectors.tables.table import Table
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.table_rows import read_table
from tidewheel._state.local_copies import folder_name
from tidewheel._storage import Store
from tidewheel._values.keyed_table import KeyedTable, with_hashes
from tidewheel.errors import StateError

_LINEAGE = "0"
"""Copies are named by their content, so all lineages of a job share a folder."""

_opened: dict[tuple[str, str, str], tuple[str, KeyedTable]] = {}
"""By state URL, stream and table: the digest of the newest version that was used, and its rows."""
_lock = threading.Lock()

in_memory: set[str] = set()
"""Folders of local copies that are not on disk, as in tests: their tables are held in memory."""


def open_table(spec: BatchSpec, store: Store, table: Table) -> KeyedTable:
    """Return the version of a table that the batch has pinned."""
    pinned = spec.tables.get(table.name)
    if pinned is None:
        raise StateError(
            f"the commits of job {spec.stream!r} have no version of the table {table.name!r}: another program made them. "
            "Start the job with this program first"
        )
    known = spec.state, spec.stream, table.name
    with _lock:
        digest, opened = _opened.get(known, ("", None))
        if opened is None or digest != pinned.digest or opened.key != table.key:
            opened = _open(spec, store, table, pinned)
            _opened[known] = pinned.digest, opened
        return opened


def _open(spec: BatchSpec, store: Store, table: Table, pinned: PinnedTable) -> KeyedTable:
    if spec.local in in_memory:
        return KeyedTable(with_hashes(read_table(store, spec.stream, pinned), table.key), table.key)
    copies = Path(spec.local, folder_name(spec.stream, _LINEAGE))
    prefix = f"{folder(table.name)}-"
    copy = copies / f"{prefix}{pinned.digest}.arrow"
    if not copy.exists():
        rows = with_hashes(read_table(store, spec.stream, pinned), table.key)
        copies.mkdir(parents=True, exist_ok=True)
        part = copy.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        with pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_batch(rows)
        # Tasks that read an earlier version have mapped it already, or copy it again.
        for old in copies.glob(f"{prefix}*.arrow"):
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        part.replace(copy)
    try:
        mapped = pa.memory_map(str(copy))
    except FileNotFoundError:  # A task of a newer batch has removed it.
        return KeyedTable(with_hashes(read_table(store, spec.stream, pinned), table.key), table.key)
    return KeyedTable(pa.ipc.open_file(mapped).get_batch(0), table.key)
