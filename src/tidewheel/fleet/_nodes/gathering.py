"""Collect waiting events in a router and cut them into blocks, by columns, for many events at once.

Not thread-safe.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidewheel.fleet._inbox.base import Block, Bytes
from tidewheel.fleet._inbox.events import compressed, packed

EVENT_OVERHEAD = 16
"""The bytes of an event in a block besides its key and payload."""
BLOCK_EVENTS = 5_000
"""The maximum number of events in a block: a reader with a limit of this many events stops between two blocks."""
_TEXT = b"s"
"""The first letter of stored text keys."""


@dataclass(slots=True, frozen=True)
class Chunk:
    """Events in order, as columns."""

    shards: NDArray[np.uint16]
    keys: pa.Array
    lines: pa.Array
    """Payloads, each followed by a line break."""
    numbers: NDArray[np.int64] | None = None
    text: bool = False
    """Whether the keys are text, without the first letter of stored keys."""

    @property
    def size(self) -> int:
        """The approximate size of the events in bytes."""
        return int(self.keys.nbytes + self.lines.nbytes)


@dataclass(slots=True)
class Gathered:
    """Events in the order of arrival: whole chunks, then single events."""

    count: int = 0
    size: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    shards: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """The producer's own numbers; empty if the router counts."""

    def add(self, chunk: Chunk) -> None:
        """Append many events."""
        self.seal()
        self.chunks.append(chunk)

    def seal(self) -> None:
        """Convert the single events to a chunk."""
        if self.shards:
            lines = [payload + b"\n" for payload in self.payloads]
            self.chunks.append(
                Chunk(
                    np.fromiter(self.shards, np.uint16, len(self.shards)),
                    pa.array(self.keys, pa.large_binary()),
                    pa.array(lines, pa.large_binary()),
                    np.array(self.numbers, np.int64) if self.numbers else None,
                )
            )
            self.shards, self.keys, self.payloads, self.numbers = [], [], [], []

    def whole(self) -> Chunk:
        """Return all events as one chunk."""
        self.seal()
        if len(self.chunks) == 1:
            return self.chunks[0]
        text = all(chunk.text for chunk in self.chunks)
        return Chunk(
            np.concatenate([chunk.shards for chunk in self.chunks]),
            pa.concat_arrays([chunk.keys if text else _stored_keys(chunk) for chunk in self.chunks]),
            pa.concat_arrays([chunk.lines for chunk in self.chunks]),
            None
            if self.chunks[0].numbers is None
            else np.concatenate([c.numbers for c in self.chunks if c.numbers is not None]),
            text,
        )


@dataclass(slots=True, frozen=True)
class _Values:
    """A range of a column's values with their positions in the column's bytes, so that slicing does not need Arrow."""

    offsets: NDArray[np.int64]
    data: memoryview

    @classmethod
    def of(cls, column: pa.Array) -> _Values:
        data = column.buffers()[2]
        return cls(_offsets(column), memoryview(b"" if data is None else data))

    def cut(self, begin: int, end: int) -> _Values:
        return _Values(self.offsets[begin : end + 1], self.data)

    def raw(self) -> memoryview:
        return self.data[self.offsets[0] : self.offsets[-1]]

    def ends(self) -> NDArray[np.uint32]:
        ends: NDArray[np.uint32] = (self.offsets[1:] - self.offsets[0]).astype(np.uint32)
        return ends


@dataclass(slots=True, frozen=True)
class Part:
    """The events of one block, not yet encoded."""

    shard: int
    first: int
    count: int
    keys: _Values
    lines: _Values
    numbers: NDArray[np.int64] | None
    text: bool

    @property
    def through(self) -> int:
        """The number of the last event, if the producer numbers its events; otherwise 0."""
        return 0 if self.numbers is None else int(self.numbers[-1])

    @property
    def size(self) -> int:
        """The approximate size of the events in bytes."""
        return len(self.keys.raw()) + len(self.lines.raw()) + self.count * EVENT_OVERHEAD

    def packed(self) -> list[Bytes]:
        """Return the block's data in pieces."""
        return packed(_TEXT if self.text else b"", self.keys.raw(), self.keys.ends(), self.lines.raw(), self.numbers)


def blocks_of(parts: Sequence[Part], *, compress: bool) -> list[Block]:
    """Return the blocks of these parts."""
    pieces = [part.packed() for part in parts]
    data: Sequence[Bytes] = compressed(pieces) if compress else _joined(pieces)
    return [
        Block(part.shard, part.first, part.count, each, part.through) for part, each in zip(parts, data, strict=True)
    ]


def _joined(blocks: Sequence[Sequence[Bytes]]) -> list[memoryview]:
    """Return the data of blocks in one buffer: allocating and freeing many of medium size would be slow."""
    whole = memoryview(b"".join(itertools.chain.from_iterable(blocks)))
    ends = itertools.accumulate((sum(map(len, pieces)) for pieces in blocks), initial=0)
    return [whole[begin:end] for begin, end in itertools.pairwise(ends)]


class Cutter:
    """Numbers a producer's events per shard, skips stored ones, and cuts the rest into blocks."""

    def __init__(self, last: Mapping[int, int], stored: Mapping[int, int], block_bytes: int) -> None:
        """Use, by shard, the numbers of the last event cut and of the last event stored."""
        self._last, self._stored, self._block_bytes = dict(last), dict(stored), block_bytes
        self.passed_over = 0
        """How many events were already stored."""

    def rounds(self, gathered: Gathered) -> list[list[Part]]:
        """Return the blocks to append, round by round: a round has at most one block per shard."""
        rounds: list[list[Part]] = []
        for part in self._by_shard(gathered.whole()):
            for number, piece in enumerate(self._pieces(part)):
                if number == len(rounds):
                    rounds.append([])
                rounds[number].append(piece)
        return rounds

    def _by_shard(self, chunk: Chunk) -> Iterator[Part]:
        """Yield the events of each shard, in order, without stored ones."""
        order = np.argsort(chunk.shards, kind="stable")
        shards = chunk.shards[order]
        indices = pa.array(order)
        keys, lines = _Values.of(chunk.keys.take(indices)), _Values.of(chunk.lines.take(indices))
        numbers = None if chunk.numbers is None else chunk.numbers[order]
        edges = [0, *(np.flatnonzero(np.diff(shards)) + 1).tolist(), len(shards)]
        for begin, end in itertools.pairwise(edges):
            shard = int(shards[begin])
            stored = self._stored.get(shard, 0)
            if numbers is None:
                first = self._last.get(shard, 0) + 1
                self._last[shard] = first + end - begin - 1
                passed = min(max(stored + 1 - first, 0), end - begin)
                first += passed
            else:
                passed = int(np.searchsorted(numbers[begin:end], stored, side="right"))
                first = int(numbers[begin + passed]) if begin + passed < end else 0
            self.passed_over += passed
            begin += passed
            if begin < end:
                own = None if numbers is None else numbers[begin:end]
                cut = keys.cut(begin, end), lines.cut(begin, end)
                yield Part(shard, first, end - begin, *cut, own, chunk.text)

    def _pieces(self, part: Part) -> Iterator[Part]:
        """Split events that are too large for one block."""
        count, keys, lines = part.count, part.keys.offsets, part.lines.offsets
        begin, before = 0, int(keys[0] + lines[0])
        if count <= BLOCK_EVENTS and int(keys[-1] + lines[-1]) - before + count * EVENT_OVERHEAD <= self._block_bytes:
            yield part
            return
        ends = (keys + lines)[1:] + np.arange(1, count + 1) * EVENT_OVERHEAD
        while begin < count:
            fitting = int(np.searchsorted(ends, before + self._block_bytes, side="right"))
            end = max(begin + 1, min(fitting, begin + BLOCK_EVENTS))
            numbers = None if part.numbers is None else part.numbers[begin:end]
            first = part.first + begin if numbers is None else int(numbers[0])
            cut = part.keys.cut(begin, end), part.lines.cut(begin, end)
            yield Part(part.shard, first, end - begin, *cut, numbers, part.text)
            begin, before = end, int(ends[end - 1])


def lines_array(lines: bytes) -> pa.Array:
    """Return lines, each with a line break, as a column."""
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends])
    return pa.Array.from_buffers(pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(lines)])


def longest(column: pa.Array) -> int:
    """Return the length in bytes of the longest value of a column."""
    return int(np.diff(_offsets(column)).max(initial=0))


def begins_any(column: pa.Array, byte: bytes) -> bool:
    """Return whether any value of a column without empty values begins with a byte."""
    first = np.frombuffer(column.buffers()[2], np.uint8)[_offsets(column)[:-1]]
    return bool((first == ord(byte)).any())


def _stored_keys(chunk: Chunk) -> pa.Array:
    keys = chunk.keys.cast(pa.large_binary())
    if not chunk.text:
        return keys
    letter, nothing = pa.scalar(_TEXT, pa.large_binary()), pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(letter, keys, nothing)


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    buffer = array.buffers()[1]
    return np.frombuffer(buffer, np.int64, len(array) + 1, array.offset * 8)
