"""The record that a backend holds for a cell: the value, its declared type, and who wrote it."""

from __future__ import annotations

import os

import msgspec

from tidewheel._cells.author import Author
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError

FORMAT = 1
FORGOTTEN = ""
"""The type of a cell that let go of it: it is empty, and fits any declaration."""


class CellRecord(msgspec.Struct, frozen=True, array_like=True):
    """One version of a cell. `value` is None when the cell is empty; `token` makes every record different.

    A field is only ever added at the end, with a default: older versions pass over what they do not know.
    """

    format: int
    type_name: str
    token: bytes
    value: bytes | None
    ticket: str | None = None
    proof: bytes | None = None
    author: Author | None = None
    """None: an older version wrote it, which did not note this."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CellRecord).decode


def new_token() -> bytes:
    """Return bytes that no other record has."""
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
            f"what stands at {where} is not a cell's record ({error}); something else writes there: "
            "give cells a place of their own"
        ) from None
    if record.format > FORMAT:
        raise CorruptError(
            f"{where} was written by a newer version of Tidewheel (format {record.format}, known here: {FORMAT}); upgrade"
        )
    return record


def statement(path: str, type_name: str, token: bytes, value: bytes | None) -> bytes:
    """Return what a writer signs who proves that the ticket is its own: everything that a reader goes by."""
    return b"tidewheel cell\0" + _encode((path, type_name, token, value))
