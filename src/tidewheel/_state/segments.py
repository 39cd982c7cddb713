"""Segments: parts of a state that is too large for one value.

A key's state is one value in its step's table, which is read and written as a whole. A codec that supports segments
splits a large state into a *head*, which describes the segments, and the segments: values in the auxiliary table
`step/segments`. A segment that is not used is not read, and an unchanged segment is not written.

During a batch, its heads contain the changed segments; they are moved to the table when the batch's changes are
written.
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
    from tidewheel._state.state_file import Items
    from tidewheel._state.task_state import TaskState

SUFFIX = "segments"
"""The part of a table's name after the step's."""

Place = int | bytes
"""The location of a segment: its number in the table or, during the batch that changed it, its content."""
UNREADABLE = (CorruptError, LocalDiskFull)
"""The errors of reading a segment in the middle of a message."""
Load = Callable[[int], bytes]
"""Returns the content of the segment with a number."""

_encode = msgspec.msgpack.Encoder().encode
_EXTENSIONS = frozenset({*range(0xC7, 0xCA), *range(0xD4, 0xD9)})
"""The first bytes of extension types in msgpack. An undivided state is an array or a map."""


class SegmentedCodec(BulkCodec):
    """A codec that divides large states. It encodes a whole state or a head, as made by `head`."""

    @abstractmethod
    def from_head(self, segments: list[Any], load: Load) -> Any:
        """Return the state of a head; `segments` are those passed to `head`."""


def head(segments: Sequence[Sequence[Any]]) -> bytes:
    """Encode the head of a divided state. Each segment has the codec's own data and, last, its `Place`."""
    return divided(Divided(list(map(list, segments))))


def is_head(raw: bytes | None) -> bool:
    """Return whether a state is divided."""
    return raw is not None and raw[0] in _EXTENSIONS


def whole(raw: bytes, load: Load) -> bytes:
    """Return a divided state as one value, like a small state: for tools, which only know msgpack.

    Segments are maps, which are merged into one map, or lists, whose first item in the head is the list's index.
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
    """Return whether a table has segments, whose keys are not message keys."""
    return table.endswith(f"/{SUFFIX}")


def segment_key(stored: bytes, number: int) -> bytes:
    """Return the key of a segment in the store: the stored form of a tuple of the stored key and the number.

    >>> owner_of_segment(segment_key(b"sada", 7))
    b'sada'
    """
    return b"m" + msgspec.msgpack.encode((stored, number))


def owner_of_segment(entry: bytes) -> bytes:
    """Return the stored key that the segment's state belongs to."""
    stored: bytes = msgspec.msgpack.decode(entry[1:])[0]
    return stored


def moved_segment(entry: bytes, stored: bytes) -> bytes:
    """Return the key of a segment after its state is assigned to another key."""
    return segment_key(stored, msgspec.msgpack.decode(entry[1:])[1])


class SegmentTable:
    """The segments of one step's states, for one task and batch."""

    def __init__(self, task: TaskState, table: str, codec: SegmentedCodec) -> None:
        """Use this name of the step's table."""
        self._task, self._states, self._table, self._codec = task, table, f"{table}/{SUFFIX}", codec
        self._changed: dict[int, Items] = {}

    def decoded(self, stored: Sequence[bytes], raws: list[bytes | None]) -> list[Any]:
        """Return the states of stored keys; segments are read on demand."""
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
        """Return the changes of the step's table without segments; `changes` returns the segments."""
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
        """Return for each key the numbers of its segments at the start of the batch."""
        reader = self._task.reader(shard)
        if not reader.count(self._table):
            return [[] for _ in items]
        raws = reader.get_many(self._states, [stored for stored, _ in items])
        return [[row[-1] for row in _segments(raw)] if raw is not None and is_head(raw) else [] for raw in raws]

    def touched(self) -> set[int]:
        """Return nothing beyond the shards of the step's table."""
        return set()

    def changes(self, shard: int) -> Items:
        """Return the segments that `divide` found in the shard."""
        return self._changed.get(shard, [])

    def close(self) -> None:
        """Do nothing: no resources are open."""


def _segments(raw: bytes) -> list[Any]:
    try:
        return undivided(raw).segments
    except (ValueError, *UNDECODABLE) as error:
        raise CorruptError(f"{len(raw)} bytes of state are not the head of segments ({error})") from None
