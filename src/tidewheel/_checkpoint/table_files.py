"""The files of reference tables: bytes with a checksum, next to the state."""

from __future__ import annotations

from xxhash import xxh64_intdigest

from tidewheel._checkpoint.names import path
from tidewheel._state.references import FileRef
from tidewheel._storage import Store
from tidewheel.errors import CorruptError


def write_part(store: Store, stream: str, name: str, part: bytes) -> FileRef:
    """Store a part of a table durably under its name, which no other content has."""
    store.create(path(stream, name), part)
    return FileRef(name, len(part), int(xxh64_intdigest(part)))


def read_part(store: Store, stream: str, file: FileRef) -> bytes:
    """Return the bytes of a part; raise `CorruptError` if they are not those that were written."""
    where = path(stream, file.name)
    data = store.read(where)
    if len(data) != file.size or int(xxh64_intdigest(data)) != file.checksum:
        raise CorruptError(
            f"{where} at {store.url} is damaged; restore it from a backup, or restore the job to a checkpoint before it"
        )
    return data
