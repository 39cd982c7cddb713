"""Entries of a log file: the blocks of one append, with an index and checksums.

frame    length of the header (u32), 4 zero bytes, xxh64 of the header (u64)
header   msgpack: who wrote it and when, and for each block shard, first number, count, length, xxh64
bodies   the blocks' data, one after the other

A log file begins with entries without producer and blocks that hold the marks of all producers, so that earlier files
are not needed to detect repeated events. An entry with a producer and no blocks deletes the marks of the producer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.fleet._inbox.base import Block, Bytes

_FRAME = struct.Struct("<IIQ")
FRAME_BYTES = _FRAME.size
_LARGEST_HEADER = 2**26
_MARKS_NUMBERS, _MARKS_PRODUCERS = 65_536, 10_000


_Count = Annotated[int, msgspec.Meta(ge=0)]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """The position of a block in its entry."""

    shard: _Count
    first: int
    count: _Count
    length: _Count
    """Never negative: the next entry begins after the blocks, otherwise a reader would loop forever."""
    checksum: _Count
    through: int = 0

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.through or self.first + self.count - 1


class Mark(msgspec.Struct, array_like=True):
    """The marks of a producer: its last session, its last number in each shard, and the time of its last append."""

    session: str
    last: dict[int, int]
    at: float = 0.0
    """Seconds since 1970; 0 if unknown."""
    sessions: dict[int, str] = {}
    """The session that stored the last number of a shard, if it was an earlier one. Older versions ignore this field."""

    def of(self, shard: int) -> tuple[str, int]:
        """Return the session and the number of the last event in a shard."""
        return self.sessions.get(shard, self.session), self.last.get(shard, 0)

    def add(self, session: str, last: Iterable[tuple[int, int]], at: float) -> None:
        """Record the last numbers, by shard, that a session has appended."""
        if session != self.session:
            found = {shard: self.of(shard)[0] for shard in self.last}
            self.sessions = {shard: earlier for shard, earlier in found.items() if earlier != session}
        self.session, self.at = session, at
        for shard, number in last:
            self.last[shard] = number
            self.sessions.pop(shard, None)


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The writer and the content of an entry."""

    producer: str
    session: str
    parts: tuple[Part, ...]
    marks: dict[str, Mark] = {}
    at: float = 0.0


class Found(msgspec.Struct, frozen=True):
    """An entry's header, where its bodies begin and where it ends, as offsets in the file."""

    header: Header
    bodies: int
    end: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Header).decode


def encode(producer: str, session: str, blocks: Sequence[Block], at: float) -> list[Bytes]:
    """Return the bytes of an entry with blocks, in pieces, so that large blocks are not copied."""
    parts = tuple(
        Part(block.shard, block.first, block.count, len(block.data), xxh64_intdigest(block.data), block.through)
        for block in blocks
    )
    return [_framed(Header(producer, session, parts, at=at)), *(block.data for block in blocks)]


def encode_forget(producer: str, at: float) -> bytes:
    """Return the bytes of an entry that deletes the marks of a producer."""
    return _framed(Header(producer, "", (), at=at))


def encode_marks(marks: Mapping[str, Mark]) -> bytes:
    """Return the bytes of the entries at the beginning of a file, none of which is large."""
    entries, group, numbers = [], {}, 0
    for producer, mark in marks.items():
        group[producer] = mark
        numbers += len(mark.last)
        if numbers > _MARKS_NUMBERS or len(group) == _MARKS_PRODUCERS:
            entries.append(_framed(Header("", "", (), group)))
            group, numbers = {}, 0
    return b"".join([*entries, _framed(Header("", "", (), group))])


def _framed(header: Header) -> bytes:
    body = _encode(header)
    return _FRAME.pack(len(body), 0, xxh64_intdigest(body)) + body


def find(data: memoryview, at: int) -> Found | None:
    """Return the entry at an offset, or None if there is no complete header."""
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
    except UNDECODABLE:
        return None
    return Found(header, bodies, bodies + sum(part.length for part in header.parts))


def is_whole(data: memoryview, found: Found) -> bool:
    """Return whether every block of an entry is complete and matches its checksum."""
    at = found.bodies
    for part in found.header.parts:
        if at + part.length > len(data) or xxh64_intdigest(data[at : at + part.length]) != part.checksum:
            return False
        at += part.length
    return True
