"""The record that a backend stores for a cell: the value, its declared type, and its author."""

from __future__ import annotations

import os

import msgspec

from tidewheel._cells.author import Author
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError

FORMAT = 1
FORGOTTEN = ""
"""The type of a cell whose type was removed: the cell is empty, and any type can be declared."""


class CellRecord(msgspec.Struct, frozen=True, array_like=True):
    """One version of a cell. `value` is None when the cell is empty; `token` makes every record different.

    Fields are only added at the end, with a default: older versions skip unknown fields.
    """

    format: int
    type_name: str
    token: bytes
    value: bytes | None
    ticket: str | None = None
    proof: bytes | None = None
    author: Author | None = None
    """None if an older version wrote the record."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CellRecord).decode


def new_token() -> bytes:
    """Return unique bytes for a record."""
    return os.urandom(12)


def encode(record: CellRecord) -> bytes:
    """Return the record's bytes."""
    return _encode(record)


def decode(data: bytes, where: str) -> CellRecord:
    """Return the record of these bytes; `where` names the cell in the error."""
    try:
        record = _decode(data)
    except UNDECODABLE as error:
        raise CorruptError(
            f"the data at {where} is not a cell's record ({error}); another program writes there: "
            "give cells a place of their own"
        ) from None
    if record.format > FORMAT:
        raise CorruptError(
            f"{where} was written by a newer version of Tidewheel (format {record.format}, known here: {FORMAT}); upgrade"
        )
    return record


def statement(path: str, type_name: str, token: bytes, value: bytes | None) -> bytes:
    """Return the bytes that a writer signs to prove that the ticket is its own: everything that readers rely on."""
    return b"tidewheel cell\0" + _encode((path, type_name, token, value))
