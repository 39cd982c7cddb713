"""The events of a block as bytes.

The data of a block is a msgpack array: the type letter that all its keys share (or none), the concatenated keys, the
end of each key, the payloads as lines of JSON, and, if the producer's numbers have gaps, the numbers. So a block is
made from columns without a loop over events, and its lines are parsed directly. The data may be one compressed zstd
frame: events are similar, and compressing is faster than making the bytes durable.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from tidewheel._core.decompression import expand, is_allowed
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError
from tidewheel.fleet._inbox.base import Bytes, Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

# numpy is imported where it is used: a look-up in stored state imports this module, and must start fast.


class Events(msgspec.Struct, frozen=True):
    """The events of a block: keys as `keys.to_stored` encodes them, payloads as JSON, the producer's numbers."""

    keys: list[bytes]
    payloads: list[bytes]
    numbers: list[int]


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    letter: bytes
    keys: bytes
    key_ends: bytes
    """Unsigned numbers of 4 bytes, little-endian."""
    lines: bytes
    """Payloads, each followed by a line break. Line breaks inside JSON are replaced by spaces."""
    numbers: bytes | None = None
    """Numbers of 8 bytes, little-endian."""


_NIL = b"\xc0"
_LEVEL = 1
_COMPRESSED = b"\x28\xb5\x2f\xfd"
"""The first bytes of a zstd frame; uncompressed data begins with the head of an array."""
_MOST_BYTES = 64 * 2**20
"""More than any inbox accepts for a block."""
_decode = msgspec.msgpack.Decoder(_Packed).decode


def packed(
    letter: bytes,
    keys: Bytes,
    key_ends: NDArray[np.uint32],
    lines: Bytes,
    numbers: NDArray[np.int64] | None,
) -> list[Bytes]:
    """Encode columns as the data of a block, in pieces, so that large ones are not copied."""
    ends = key_ends.tobytes()
    start = b"\x95" + _head(letter) + letter + _head(keys)
    if numbers is None:
        return [start, keys, _head(ends), ends, _head(lines), lines, _NIL]
    own = numbers.tobytes()
    return [start, keys, _head(ends), ends, _head(lines), lines, _head(own), own]


def compressed(blocks: Iterable[Sequence[Bytes]]) -> list[bytes]:
    """Compress the data of blocks, each given in pieces; `decode_events` reads both forms."""
    import zstandard

    compress = zstandard.ZstdCompressor(level=_LEVEL).compress
    plain = [b"".join(pieces) for pieces in blocks]
    pairs = ((data, compress(data)) for data in plain)
    return [packed if is_allowed(len(data), len(packed)) else data for data, packed in pairs]


def _head(data: Bytes) -> bytes:
    """Return the msgpack header of a byte string."""
    size = len(data)
    if size < 2**8:
        return b"\xc4" + size.to_bytes(1, "big")
    if size < 2**16:
        return b"\xc5" + size.to_bytes(2, "big")
    return b"\xc6" + size.to_bytes(4, "big")


def encode_events(keys: Sequence[bytes], payloads: Sequence[bytes], numbers: Sequence[int] | None = None) -> bytes:
    """Encode single events as the data of a block."""
    import numpy as np

    ends = np.cumsum(np.fromiter(map(len, keys), np.uint32, len(keys)), dtype=np.uint32)
    lines = b"".join(one_line(payload) + b"\n" for payload in payloads)
    return b"".join(packed(b"", b"".join(keys), ends, lines, None if numbers is None else np.array(numbers, np.int64)))


def one_line(payload: bytes) -> bytes:
    """Return JSON with its line breaks replaced by spaces; in JSON they only occur between tokens."""
    return payload.replace(b"\n", b" ") if b"\n" in payload else payload


def decode_events(stored: Stored) -> Events:
    """Return the events of a stored block."""
    import numpy as np

    packed, block = _unpacked(stored), stored.block
    ends = _numbers(packed.key_ends, np.uint32, stored)
    keys = [packed.letter + packed.keys[begin:end] for begin, end in itertools.pairwise([0, *ends])]
    payloads = packed.lines.split(b"\n")
    payloads.pop()
    own = None if packed.numbers is None else _numbers(packed.numbers, np.int64, stored)
    n_numbers = block.count if own is None else len(own)
    # Checked before allocating: the sizes in a block are untrusted.
    if not len(keys) == len(payloads) == n_numbers == block.count:
        raise CorruptError(
            f"the inbox's block at position {stored.position} of shard {block.shard} says {block.count} events and has "
            f"{len(keys)} keys, {len(payloads)} payloads and {n_numbers} numbers"
        )
    return Events(keys, payloads, list(range(block.first, block.first + block.count)) if own is None else own)


def _unpacked(stored: Stored) -> _Packed:
    try:
        return _decode(_expanded(stored.block.data))
    except (ValueError, *UNDECODABLE) as error:
        raise _undecodable(stored, error) from None


def _numbers(data: bytes, kind: Any, stored: Stored) -> list[int]:
    import numpy as np

    try:
        numbers: list[int] = np.frombuffer(data, kind).tolist()
    except ValueError as error:
        raise _undecodable(stored, error) from None
    return numbers


def _undecodable(stored: Stored, error: Exception) -> CorruptError:
    return CorruptError(
        f"the inbox's block at position {stored.position} of shard {stored.block.shard}, written by "
        f"{stored.producer!r}, does not decode ({error}); it was not written by this format"
    )


def _expanded(data: Bytes) -> Bytes:
    """Decompress the data of a block; raise a `ValueError` if it is invalid."""
    if bytes(data[:4]) != _COMPRESSED:
        return data
    return expand(data, limit=_MOST_BYTES)
