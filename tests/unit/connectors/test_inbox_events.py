"""The events of a block as bytes: manual packing gives the same msgpack as the library."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import CorruptError
from tidewheel.fleet._inbox import Block, Stored, decode_events, encode_events
from tidewheel.fleet._inbox.events import compressed, packed


@pytest.mark.parametrize("size", [0, 1, 2**8 - 1, 2**8, 2**16 - 1, 2**16, 2**20])
@pytest.mark.parametrize("numbers", [None, np.arange(40, dtype=np.int64)])
def test_packed_columns_are_msgpack_whatever_their_size(size, numbers):
    ends, column = np.arange(size % 1000, dtype=np.uint32), memoryview(b"x" * size)
    expected = (b"s", column, ends.tobytes(), column, None if numbers is None else numbers.tobytes())
    assert b"".join(packed(b"s", column, ends, column, numbers)) == msgspec.msgpack.encode(expected)


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300), st.integers(1, 9)), min_size=1), st.booleans()
)
def test_events_come_back(events, own_numbers):
    keys = [key for key, _, _ in events]
    payloads = [payload.replace(b"\n", b" ") for _, payload, _ in events]
    numbers = list(itertools.accumulate(gap for _, _, gap in events)) if own_numbers else None
    through = numbers[-1] if numbers else 0
    data = encode_events(keys, payloads, numbers)
    for each in (data, compressed([[data[:3], data[3:]]])[0]):
        found = decode_events(Stored(7, "p", Block(0, 1, len(events), each, through)))
        assert (found.keys, found.payloads) == (keys, payloads)
        assert found.numbers == (numbers or list(range(1, len(events) + 1)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (zstandard.ZstdCompressor().compress(bytes(2**26 + 1)), "more than allowed"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(b"\x90"), "do not state their size"),
        (compressed([[encode_events([b"sk"], [b"1"])]])[0][:-3], "decompress"),
        (compressed([[encode_events([b"sk"], [b"1"])]])[0] + b"more", "unused data"),
    ],
)
def test_an_uncompressed_block_of_a_router_is_refused(data, why):
    with pytest.raises(CorruptError, match=f"position 7 of shard 0, written by 'p', does not decode .*{why}"):
        decode_events(Stored(7, "p", Block(0, 1, 1, data)))
