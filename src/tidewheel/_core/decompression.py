"""Bounded decompression: stored bytes never make a process allocate much more than their writer could have put there."""

from __future__ import annotations

import threading
from typing import Final

import zstandard

SMALL: Final = 16 << 20
"""Data of up to this many bytes can be compressed at any ratio."""
RATIO: Final = 256
"""The maximum compression ratio of larger data."""


class _Zstd(threading.local):
    """A context per thread: contexts are not thread-safe, and a new one for each block is slow."""

    def __init__(self) -> None:
        self.decompress = zstandard.ZstdDecompressor().decompress


_zstd = _Zstd()


def is_allowed(size: int, packed: int) -> bool:
    """Return whether `expand` accepts data of `size` bytes in a frame of `packed` bytes. Writers store other data uncompressed.

    >>> is_allowed(SMALL, 10), is_allowed(2 * SMALL, 10)
    (True, False)
    """
    return size <= max(SMALL, RATIO * packed)


def expand(data: bytes | bytearray | memoryview, size: int | None = None, limit: int | None = None) -> bytes:
    """Return the decompressed frame. Raise `ValueError` if it is damaged or larger than allowed.

    The frame must state its size: exactly `size` bytes, if given, and at most `limit`. The check happens before anything is
    allocated.
    """
    try:
        stated = zstandard.get_frame_parameters(data).content_size
        if stated == zstandard.CONTENTSIZE_UNKNOWN:
            raise ValueError("the compressed data do not state their size")
        if size is not None and stated != size:
            raise ValueError(f"the compressed data state {stated} bytes instead of {size}")
        if not is_allowed(stated, len(data)) or (limit is not None and stated > limit):
            raise ValueError(f"{len(data)} compressed bytes state {stated} bytes, more than allowed")
        return _zstd.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
