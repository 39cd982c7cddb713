"""Stored bytes that would decompress to far more than their writer could have stored."""

import resource
import struct

import pytest
import zstandard
from xxhash import xxh64_intdigest

from support.internals import FileRef
from tidewheel._checkpoint.envelope import seal, unseal
from tidewheel._core.decompression import SMALL, expand
from tidewheel._state.state_file import IndexEntry, StateFile, StateFileWriter
from tidewheel.errors import CorruptError

BIG = 900 << 20
ROOM = 64 << 10
"""In KiB, as `getrusage` counts."""


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """About 29 kB that decompress to 900 MiB."""
    packer = zstandard.ZstdCompressor(level=1).compressobj(size=BIG)
    chunk = bytes(1 << 20)
    return b"".join([packer.compress(chunk) for _ in range(BIG >> 20)]) + packer.flush()


@pytest.fixture
def memory():
    before = peak()
    yield
    assert peak() - before < ROOM


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("stated", [100, BIG])
def test_a_state_block_allocates_no_more_than_a_valid_one_could_need(bomb, memory, stated):
    writer = StateFileWriter()
    writer.add(0, "table", [(b"k", b"v")])
    data, checksum = writer.finish()
    file = StateFile.of(data, FileRef("state/x", len(data), checksum))
    entry = IndexEntry(0, 0, b"k", 1, 0, 0, len(bomb), stated, int(xxh64_intdigest(bomb)))
    with pytest.raises(CorruptError, match="does not decode"):
        file.decode(entry, memoryview(bomb))


def test_a_sealed_record_allocates_no_more_than_a_valid_one_could_need(bomb, memory):
    sealed = struct.pack("<8sHHIQ", b"TIDEWCKP", 1, 1, BIG, len(bomb)) + bomb
    with pytest.raises(CorruptError, match="does not unpack"):
        unseal(b"TIDEWCKP", 1, sealed + struct.pack("<Q", xxh64_intdigest(sealed)), "the record")


def test_data_that_compress_extremely_well_are_stored_uncompressed():
    """A state of many zeros is legitimate: its writer leaves it as it is, so that readers can have a limit."""
    zeros = bytes(2 * SMALL)
    assert unseal(b"TIDEWCKP", 1, seal(b"TIDEWCKP", 1, zeros), "the record")[1] == zeros
    writer = StateFileWriter()
    writer.add(0, "table", [(b"k", zeros)])
    data, checksum = writer.finish()
    assert StateFile.of(data, FileRef("state/x", len(data), checksum)).get(0, "table", b"k") == zeros


@pytest.mark.parametrize("damaged", [b"", b"no frame", zstandard.ZstdCompressor().compress(b"abc" * 99)[:-3]])
def test_damaged_data_are_a_value_error(damaged):
    with pytest.raises(ValueError, match=r"cannot|error|could not|not enough"):
        expand(damaged)


def test_data_of_another_size_than_expected_are_refused():
    packed = zstandard.ZstdCompressor().compress(b"abc" * 99)
    assert expand(packed, 297) == b"abc" * 99
    with pytest.raises(ValueError, match="297 bytes instead of 298"):
        expand(packed, 298)
    with pytest.raises(ValueError, match="more than allowed"):
        expand(packed, limit=200)
