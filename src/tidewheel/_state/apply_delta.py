"""Apply a delta or a snapshot to the local copy of a shard, in one LMDB transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lmdb
import msgspec

from tidewheel._state.long_keys import MAX_KEY, long_key
from tidewheel._state.missing_parts import UNKNOWN, Applied
from tidewheel._state.references import PartRef
from tidewheel._state.state_file import Block
from tidewheel.errors import CorruptError

# Names in the main database: the record of the last applied commit, and for each table a database of its keys and, if
# needed, one of its long keys. LMDB ends a name at its first NUL, so the distinguishing part comes first.
_APPLIED = b"applied"
PLAIN = b"t:"
LONG = b"l:"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Applied).decode


def apply_part(
    environment: Any,
    transaction: Any,
    shard: int,
    part: PartRef,
    empty: bool,
    blocks: Iterable[Block],
) -> None:
    """Write a part's keys to the databases of their tables; `empty` says that these are empty."""
    # In empty databases, ascending keys are appended: full pages, and no search.
    append = empty
    for block in blocks:
        name = block.table.encode()
        database = environment.open_db(PLAIN + name, transaction)
        try:
            pairs = zip(block.keys, block.values, strict=True)
            _, added = transaction.cursor(database).putmulti(pairs, append=append)
        except lmdb.BadValsizeError:
            # LMDB has stored the keys before the first long key; writing them again changes nothing.
            _put_some_long(environment, transaction, name, block)
        else:
            if added != len(block.keys):
                raise CorruptError(
                    f"state file {part.file.name}, shard {shard}, table {block.table!r}: its keys do "
                    "not ascend; restore the job to a checkpoint that does not need it"
                )
        for key in block.dropped:
            if len(key) <= MAX_KEY:
                transaction.delete(key, db=database)
            else:
                stored, _ = long_key(key, b"")
                transaction.delete(stored, db=environment.open_db(LONG + name, transaction))


def _put_some_long(environment: Any, transaction: Any, name: bytes, block: Block) -> None:
    pairs = list(zip(block.keys, block.values, strict=True))
    database = environment.open_db(PLAIN + name, transaction)
    transaction.cursor(database).putmulti([pair for pair in pairs if len(pair[0]) <= MAX_KEY])
    database = environment.open_db(LONG + name, transaction)
    long = [long_key(key, value) for key, value in pairs if len(key) > MAX_KEY]
    transaction.cursor(database).putmulti(long)


def empty_copy(environment: Any, transaction: Any) -> None:
    """Delete all keys, and the record of the last applied commit."""
    # Empty the databases, but do not delete them: other processes hold their handles.
    for name in database_names(transaction):
        transaction.drop(environment.open_db(name, transaction), delete=False)
    transaction.delete(_APPLIED)


def last_applied(transaction: Any) -> Applied | None:
    """Return the newest commit in the copy; None if the copy is empty."""
    data = transaction.get(_APPLIED)
    try:
        return None if data is None else _decode(data)
    except msgspec.DecodeError:
        # Another version of Tidewheel wrote the record and identified commits differently.
        return UNKNOWN


def remember_applied(transaction: Any, applied: Applied) -> None:
    """Record the newest commit in the copy, in the transaction that writes its keys."""
    transaction.put(_APPLIED, _encode(applied))


def database_names(transaction: Any) -> list[bytes]:
    """Return the names of the databases with keys."""
    return [name for name in transaction.cursor().iternext(keys=True, values=False) if name != _APPLIED]
