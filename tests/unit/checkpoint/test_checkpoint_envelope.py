import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from tidewheel._checkpoint import envelope
from tidewheel.errors import CorruptError, StateError

MAGIC = b"TESTTEST"


@given(st.binary(max_size=2000), st.integers(1, 9))
def test_a_sealed_body_comes_back_with_its_version(body, version):
    assert envelope.unseal(MAGIC, 9, envelope.seal(MAGIC, version, body), "it") == (version, body)


def test_a_body_is_compressed_when_that_helps_and_only_then():
    assert len(envelope.seal(MAGIC, 1, b"a" * 10_000)) < 200
    assert len(envelope.seal(MAGIC, 1, b"ab")) == 24 + 2 + 8


def test_another_kind_of_record_is_refused():
    with pytest.raises(CorruptError, match="TESTTEST"):
        envelope.unseal(b"OTHEROTH", 1, envelope.seal(MAGIC, 1, b"x"), "it")


def test_a_length_past_the_end_is_refused_with_the_actual_length():
    with pytest.raises(CorruptError, match="18446744073709551615"):
        envelope.unseal(MAGIC, 1, _record(b"body", length=2**64 - 1), "it")


def test_unknown_flags_and_version_0_are_refused():
    with pytest.raises(CorruptError, match="flags"):
        envelope.unseal(MAGIC, 1, _record(b"body", flags=2), "it")
    with pytest.raises(CorruptError, match="version 0"):
        envelope.unseal(MAGIC, 1, _record(b"body", version=0), "it")


def test_a_forged_size_before_compression_takes_no_memory():
    packed = zstandard.ZstdCompressor().compress(b"a" * 1000)
    for raw in (999, 1001, envelope.MAX_BODY, 2**32 - 1):
        with pytest.raises(CorruptError):
            envelope.unseal(MAGIC, 1, _record(packed, flags=1, raw=raw), "it")


def test_a_frame_without_its_size_and_bytes_after_the_frame_are_refused():
    sizeless = zstandard.ZstdCompressor(write_content_size=False).compress(b"a" * 1000)
    followed = zstandard.ZstdCompressor().compress(b"a" * 1000) + b"more"
    for packed in (sizeless, followed, b"", b"no frame at all"):
        with pytest.raises(CorruptError):
            envelope.unseal(MAGIC, 1, _record(packed, flags=1, raw=1000), "it")


def test_a_plain_body_with_a_wrong_size_is_refused():
    with pytest.raises(CorruptError, match="plain"):
        envelope.unseal(MAGIC, 1, _record(b"body", raw=3), "it")


def test_a_body_too_large_is_refused_when_sealing(monkeypatch):
    monkeypatch.setattr(envelope, "MAX_BODY", 100)
    with pytest.raises(StateError, match="101 bytes"):
        envelope.seal(MAGIC, 1, b"a" * 101)


def _record(
    stored: bytes, version: int = 1, flags: int = 0, raw: int | None = None, length: int | None = None
) -> bytes:
    """A record with a right checksum, whatever else is wrong with it."""
    sizes = (len(stored) if raw is None else raw, len(stored) if length is None else length)
    sealed = struct.pack("<8sHHIQ", MAGIC, version, flags, *sizes) + stored
    return sealed + struct.pack("<Q", xxh64_intdigest(sealed))
