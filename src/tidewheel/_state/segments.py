"""Segments: parts of a state that is too large for one value.

A key's state is one value in its operator's table, which is read and written whole. A codec that can divide it makes a *head*
of a large one, which says what is where, and segments: values of their own, in a table beside the operator's,
`operator/segments`. A segment that nobody asks for is not read, and one that nobody changed is not written.

While a batch is at work its heads hold the segments that changed; they are taken out when the batch's changes are written.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tidewheel._core.keys import from_stored, shard_of_stored
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._state.codec import BulkCodec, decode_all
from tidewheel._state.tagged import Divided, divided, undivided
from tidewheel.errors import CorruptError, LocalDiskFull

if TYPE_CHECKING:
    from tidewheel._state.task_state import Items, TaskState

SUFFIX = "segments"
"""The part of a table's name after the operator's."""

Place = int | bytes
"""Where a segment is: its number in the table or, while the batch that changed it is at work, its content."""
UNREADABLE = (CorruptError, LocalDiskFull)
"""What is raised in the middle of a message where a segment cannot be read."""
Load = Callable[[int], bytes]
"""Returns the content of the segment with a number."""

_encode = msgspec.msgpack.Encoder().encode
_EXTENSIONS = frozenset({*range(0xC7, 0xCA), *range(0xD4, 0xD9)})
"""How an extension type begins in msgpack. A state that is whole is an array or a map."""


class SegmentedCodec(BulkCodec):
    """A codec that divides large states. What it encodes is a whole state or a head, as `head` makes it."""

    @abstractmethod
    def from_head(self, segments: list[Any], load: Load) -> Any:
        """Return the state of a head: its segments as `head` got them."""


def head(segments: Sequence[Sequence[Any]]) -> bytes:
    """Return the head of a divided state. Of each segment it takes what the codec knows of it, and last its `Place`."""
    return divided(Divided(list(map(list, segments))))


def is_head(raw: bytes | None) -> bool:
    """Tell whether a state is divided."""
    return raw is not None and raw[0] in _EXTENSIONS


def whole(raw: bytes, load: Load) -> bytes:
    """Return the state of a head as one value, as it is where it is small: for tools, which know no codec but msgpack.

    Segments are maps, which come to one map; or lists, and then the first that the head has of each is which list it is of.
    """
    rows = _segments(raw)
    contents = [msgspec.msgpack.decode(load(row[-1]), type=dict[Any, msgspec.Raw] | list[msgspec.Raw]) for row in rows]
    if all(isinstance(content, dict) for content in contents):
        return _encode({name: value for content in contents for name, value in content.items()})
    lists: list[list[msgspec.Raw]] = [[], [], []]
    for row, content in zip(rows, contents, strict=True):
        lists[row[0]] += content
    return _encode(lists)


def is_segments(table: str) -> bool:
    """Tell whether a table holds segments, whose keys are not the keys of messages."""
    return table.endswith(f"/{SUFFIX}")


def segment_key(stored: bytes, number: int) -> bytes:
    """Return the key of a segment in the store: what a tuple of the stored key and the number would be as a key.

    >>> owner_of_segment(segment_key(b"sada", 7))
    b'sada'
    """
    return b"m" + msgspec.msgpack.encode((stored, number))


def owner_of_segment(entry: bytes) -> bytes:
    """Return the stored key whose state the segment is of."""
    stored: bytes = msgspec.msgpack.decode(entry[1:])[0]
    return stored


def moved_segment(entry: bytes, stored: bytes) -> bytes:
    """Return the key that a segment has when its state is that of another key."""
    return segment_key(stored, msgspec.msgpack.decode(entry[1:])[1])


class SegmentTable:
    """The segments of one operator's states, for one task and batch."""

    def __init__(self, task: TaskState, table: str, codec: SegmentedCodec) -> None:
        """Take the name of the operator's table."""
        self._task, self._states, self._table, self._codec = task, table, f"{table}/{SUFFIX}", codec
        self._changed: dict[int, Items] = {}

    def decoded(self, stored: Sequence[bytes], raws: list[bytes | None]) -> list[Any]:
        """Return the states of stored keys; segments are read when they are asked for."""
        if not any(map(is_head, raws)):
            return decode_all(self._codec, raws)
        whole = decode_all(self._codec, [None if is_head(raw) else raw for raw in raws])
        return [
            self._codec.from_head(_segments(raw), partial(self._load, key))
            if raw is not None and is_head(raw)
            else state
            for key, raw, state in zip(stored, raws, whole, strict=True)
        ]

    def _load(self, stored: bytes, number: int) -> bytes:
        shard = shard_of_stored(stored, self._task.n_shards)
        raw = self._task.reader(shard).get(self._table, segment_key(stored, number))
        if raw is None:
            raise CorruptError(
                f"segment {number} of the state of key {from_stored(stored)!r} is not in {self._table!r}; check the job with "
                "`tidewheel checkpoints verify`, and restore an earlier checkpoint"
            )
        return raw

    def divide(self, shard: int, items: Items) -> Items:
        """Return the changes of the operator's table without the segments in them; `changes` has these from now on."""
        before = self._stored_numbers(shard, items)
        heads: list[tuple[bytes, bytes | None]] = []
        segments: dict[bytes, bytes | None] = {}
        for (stored, raw), numbers in zip(items, before, strict=True):
            rows = _segments(raw) if raw is not None and is_head(raw) else []
            kept = {row[-1] for row in rows if isinstance(row[-1], int)}
            segments.update((segment_key(stored, number), None) for number in numbers if number not in kept)
            number = max(numbers, default=-1)
            for row in rows:
                if isinstance(row[-1], bytes):
                    number += 1
                    segments[segment_key(stored, number)] = row[-1]
                    row[-1] = number
            heads.append((stored, head(rows) if rows else raw))
        self._changed[shard] = sorted(segments.items())
        return heads

    def _stored_numbers(self, shard: int, items: Items) -> Iterable[list[int]]:
        """Return for each key the numbers of the segments that it had when the batch began."""
        reader = self._task.reader(shard)
        if not reader.count(self._table):
            return [[] for _ in items]
        raws = reader.get_many(self._states, [stored for stored, _ in items])
        return [[row[-1] for row in _segments(raw)] if raw is not None and is_head(raw) else [] for raw in raws]

    def touched(self) -> set[int]:
        """Nothing that the operator's table does not name."""
        return set()

    def changes(self, shard: int) -> Items:
        """Return what `divide` found in the shard."""
        return self._changed.get(shard, [])

    def close(self) -> None:
        """Nothing is held open."""


def _segments(raw: bytes) -> list[Any]:
    try:
        return undivided(raw).segments
    except (ValueError, *UNDECODABLE) as error:
        raise CorruptError(f"{len(raw)} bytes of state are no head of segments ({error})") from None
