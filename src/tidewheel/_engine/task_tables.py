"""The reference tables of a task: copied to the host once, mapped into memory, and cached in the process."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pyarrow as pa

from tidewheel._checkpoint.manifest import PinnedTable
from tidewheel._checkpoint.names import folder
from tidewheel._connectors.tables.table import Table
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.table_rows import read_table
from tidewheel._state.local_copies import folder_name
from tidewheel._storage import Store
from tidewheel._values.keyed_table import KeyedRows, KeyedTable, with_hashes
from tidewheel._values.parted_table import PartedTable
from tidewheel.errors import StateError

_LINEAGE = "0"
"""Copies are named by their content, so all lineages of a job share a folder."""

_opened: dict[tuple[str, str, str], tuple[str, tuple[str, ...], KeyedRows]] = {}
"""By state URL, stream and table: the digest of the newest version that was used, its key, and its rows."""
_lock = threading.Lock()

in_memory: set[str] = set()
"""Folders of local copies that are not on disk, as in tests: their tables are held in memory."""


def open_table(spec: BatchSpec, store: Store, table: Table) -> KeyedRows:
    """Return the version of a table that the batch has pinned."""
    pinned = spec.tables.get(table.name)
    if pinned is None:
        job = spec.stream.partition("/")[0]
        raise StateError(
            f"the commits of job {job!r} have no version of the table {table.name!r}: another program made them. Start the job "
            "with this program first"
        )
    known = spec.state, spec.stream, table.name
    with _lock:
        digest, key, opened = _opened.get(known, ("", (), None))
        if opened is None or digest != pinned.digest or key != table.key:
            opened = _open(spec, store, table, pinned)
            _opened[known] = pinned.digest, table.key, opened
        return opened


def forget_tables(state: str) -> None:
    """Forget the tables that were opened for batches of one state URL, so that their memory is released."""
    with _lock:
        for known in [each for each in _opened if each[0] == state]:
            del _opened[known]


def _open(spec: BatchSpec, store: Store, table: Table, pinned: PinnedTable) -> KeyedRows:
    if not pinned.later_parts:
        return _open_part(spec, store, table, pinned, 0)
    return PartedTable(1 + len(pinned.later_parts), partial(_open_part, spec, store, table, pinned))


def _open_part(spec: BatchSpec, store: Store, table: Table, pinned: PinnedTable, part: int) -> KeyedTable:
    def read() -> pa.RecordBatch:
        return with_hashes(read_table(store, spec.stream, pinned, part), table.key)

    if spec.local in in_memory:
        return KeyedTable(read(), table.key)
    copies = Path(spec.local, folder_name(spec.stream, _LINEAGE))
    prefix = f"{folder(table.name)}-"
    copy = copies / f"{prefix}{pinned.digest}-{part}.arrow"
    if not copy.exists():
        rows = read()
        copies.mkdir(parents=True, exist_ok=True)
        unready = copy.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        with pa.OSFile(str(unready), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_batch(rows)
        # Tasks that read an earlier version have mapped it already, or copy it again.
        for old in {*copies.glob(f"{prefix}*.arrow")} - {*copies.glob(f"{prefix}{pinned.digest}-*.arrow")}:
            old.unlink(missing_ok=True)
        unready.replace(copy)
    try:
        mapped = pa.memory_map(str(copy))
    except FileNotFoundError:  # A task of a newer batch has removed it.
        return KeyedTable(read(), table.key)
    return KeyedTable(pa.ipc.open_file(mapped).get_batch(0), table.key)
