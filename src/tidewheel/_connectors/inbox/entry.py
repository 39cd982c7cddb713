"""Entries of a log file: what one append wrote, with an index of its blocks and checksums.

frame    length of the header (u32), 4 zero bytes, xxh64 of the header (u64)
header   msgpack: who wrote it, and for each block shard, first number, count, length, xxh64
bodies   the blocks' data, one after the other
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._connectors.inbox.base import Block

_FRAME = struct.Struct("<IIQ")
FRAME_BYTES = _FRAME.size
_LARGEST_HEADER = 2**26


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Where a block stands in its entry."""

    shard: int
    first: int
    count: int
    length: int
    checksum: int


class Header(msgspec.Struct, frozen=True, array_like=True):
    """Who wrote an entry, and what is in it.

    The first entry of a log file has `marks` and no parts: by producer its session and its last number in each shard,
    so that the files before it are not needed to tell a duplicate.
    """

    producer: str
    session: str
    parts: tuple[Part, ...]
    marks: dict[str, tuple[str, dict[int, int]]] = {}


class Found(msgspec.Struct, frozen=True):
    """An entry's header, where its bodies begin and where it ends, as offsets in the file."""

    header: Header
    bodies: int
    end: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Header).decode


def encode(producer: str, session: str, blocks: Sequence[Block]) -> bytes:
    """Return the bytes of an entry."""
    parts = tuple(Part(b.shard, b.first, b.count, len(b.data), xxh64_intdigest(b.data)) for b in blocks)
    return _framed(Header(producer, session, parts)) + b"".join(block.data for block in blocks)


def encode_marks(marks: dict[str, tuple[str, dict[int, int]]]) -> bytes:
    """Return the bytes of a file's first entry."""
    return _framed(Header("", "", (), marks))


def _framed(header: Header) -> bytes:
    body = _encode(header)
    return _FRAME.pack(len(body), 0, xxh64_intdigest(body)) + body


def find(data: memoryview, at: int) -> Found | None:
    """Return the entry that begins at an offset, None if no whole header stands there."""
    if at + FRAME_BYTES > len(data):
        return None
    length, zero, checksum = _FRAME.unpack_from(data, at)
    bodies = at + FRAME_BYTES + length
    if zero or not 0 < length <= _LARGEST_HEADER or bodies > len(data):
        return None
    raw = data[at + FRAME_BYTES : bodies]
    if xxh64_intdigest(raw) != checksum:
        return None
    try:
        header = _decode(raw)
    except msgspec.DecodeError:
        return None
    return Found(header, bodies, bodies + sum(part.length for part in header.parts))


def is_whole(data: memoryview, found: Found) -> bool:
    """Tell whether every block of an entry is there and matches its checksum."""
    at = found.bodies
    for part in found.header.parts:
        if at + part.length > len(data) or xxh64_intdigest(data[at : at + part.length]) != part.checksum:
            return False
        at += part.length
    return True
