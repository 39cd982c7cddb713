"""The envelope around a stored record: magic, format version, length, body, checksum.

    8 bytes   magic          which kind of record it is
    2 bytes   version        of the body's format, little-endian as all numbers here
    2 bytes   flags          1: the body is compressed (zstd); no other flag is known
    4 bytes   raw length     of the body before compression
    8 bytes   length         of the body as it follows
    n bytes   body
    8 bytes   checksum       xxh64 of everything before it

This layout is the same in every later version, so that an older reader can distinguish a newer record from a damaged
one: the checksum is checked before the version.
"""

from __future__ import annotations

import struct
from typing import NoReturn

import zstandard
from xxhash import xxh64_intdigest

from tidewheel._core.decompression import expand, is_allowed
from tidewheel.errors import CorruptError, StateError

MAX_BODY = 2**30
"""The largest body before compression, far above any manifest, so that a forged length cannot exhaust memory."""

_HEADER = struct.Struct("<8sHHIQ")
_CHECKSUM = struct.Struct("<Q")
_COMPRESSED = 1
_LEVEL = 1


def seal(magic: bytes, version: int, body: bytes) -> bytes:
    """Return the record that contains `body`; equal arguments give equal bytes.

    (Compressed bytes depend on the release of zstd.)
    """
    if len(body) > MAX_BODY:
        raise StateError(
            f"the record would be {len(body)} bytes, more than the {MAX_BODY} allowed; "
            "keep large state in state files and only references in the checkpoint"
        )
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(body)
    smaller = len(packed) < len(body) and is_allowed(len(body), len(packed))
    flags, stored = (_COMPRESSED, packed) if smaller else (0, body)
    sealed = _HEADER.pack(magic, version, flags, len(body), len(stored)) + stored
    return sealed + _CHECKSUM.pack(xxh64_intdigest(sealed))


def unseal(magic: bytes, version: int, data: bytes, what: str) -> tuple[int, bytes]:
    """Return the format version and the body of a record; `what` names the record in errors.

    Raises `CorruptError` if the bytes are not a complete, undamaged record, and `StateError` if the format version is
    above `version`.
    """
    if not data:
        _refuse(what, "it is empty (0 bytes)")
    if len(data) < _HEADER.size + _CHECKSUM.size:
        _refuse(what, f"it has {len(data)} bytes; the smallest record has {_HEADER.size + _CHECKSUM.size}")
    found, found_version, flags, raw_length, length = _HEADER.unpack_from(data)
    if found != magic:
        _refuse(what, f"it starts with {found!r} where {magic!r} must be: this is another kind of record")
    expected = _HEADER.size + length + _CHECKSUM.size
    if expected > len(data):
        _refuse(what, f"byte 16 gives a body of {length} bytes: {expected} bytes needed, {len(data)} there")
    if expected < len(data):
        _refuse(what, f"{len(data) - expected} trailing bytes follow its end at byte {expected}")
    sealed = data[: -_CHECKSUM.size]
    (checksum,) = _CHECKSUM.unpack_from(data, len(sealed))
    if (actual := xxh64_intdigest(sealed)) != checksum:
        _refuse(what, f"the checksum at byte {len(sealed)} is {checksum:016x}, the bytes give {actual:016x}")
    if found_version > version:
        raise StateError(
            f"{what}: it has format version {found_version}, and this Tidewheel reads up to {version}; "
            "use the newer Tidewheel that wrote it"
        )
    if found_version < 1:
        _refuse(what, "byte 8 gives format version 0, which does not exist")
    if flags & ~_COMPRESSED:
        _refuse(what, f"byte 10 has unknown flags {flags:#x}")
    return found_version, _body(sealed[_HEADER.size :], flags, raw_length, what)


def _body(stored: bytes, flags: int, raw_length: int, what: str) -> bytes:
    if raw_length > MAX_BODY:
        _refuse(what, f"byte 12 gives {raw_length} bytes before compression, more than the {MAX_BODY} allowed")
    if not flags & _COMPRESSED:
        if len(stored) != raw_length:
            _refuse(
                what,
                f"byte 12 gives {raw_length} bytes before compression, but the plain body has {len(stored)}",
            )
        return stored
    try:
        return expand(stored, raw_length)
    except ValueError as error:
        _refuse(what, f"the compressed body does not unpack to the {raw_length} bytes that byte 12 gives ({error})")


def _refuse(what: str, why: str) -> NoReturn:
    raise CorruptError(_text(what, why))


def _text(what: str, why: str) -> str:
    return f"{what}: {why}; restore it from a copy, or go back to another kept checkpoint"
