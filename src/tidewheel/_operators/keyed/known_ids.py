"""KnownIds: ids with the times until which they are known. Large sets are read in parts, on demand."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._state.codec import decode_all, msgpack_codec
from tidewheel._state.segments import Load, Place, SegmentedCodec, head

SEGMENT_IDS = 512
"""The number of ids in a new segment. A segment is split at about twice this number."""

Ids = dict[Any, int | list[int]]
"""The time until which each id is known: usually one number, sometimes several."""
Read = Callable[[Place], Ids]

_FIRST = attrgetter("first")
_encode = msgspec.msgpack.Encoder().encode


class Segment:
    """The ids whose hashes are at least `first` and below the first of the next segment."""

    __slots__ = ("_ids", "_read", "due", "first", "place")

    def __init__(
        self, first: int, due: int = 0, place: Place | None = None, read: Read | None = None, ids: Ids | None = None
    ) -> None:
        """Take the ids, or a function that reads them and the time at which half of them have expired."""
        self.first, self.due = first, due
        self.place = place
        """None if the ids have changed."""
        self._read, self._ids = read, ids

    def ids(self, epoch: int | None) -> Ids:
        """Return the ids. Reading a segment removes the ids that have expired at the epoch."""
        if self._ids is None:
            assert self._read is not None
            assert self.place is not None
            self._ids = self._read(self.place)
            if epoch is not None:
                self._ids = known_after(epoch, self._ids)
        return self._ids

    @property
    def is_read(self) -> bool:
        """Whether the ids are in memory."""
        return self._ids is not None

    def forget(self, now: int) -> None:
        """Remove expired ids."""
        ids = self.ids(None)
        left = known_after(now, ids)
        if len(left) < len(ids) or left != ids:
            self._ids, self.place = left, None


class KnownIds:
    """The ids of one key. A large set is divided into segments by the hashes of the ids.

    Expired ids are never visible. They are removed at once from segments in memory, and from other segments when half of
    a segment has expired.
    """

    __slots__ = ("segments",)

    def __init__(self, segments: list[Segment] | None = None) -> None:
        """Take the segments in the order of their hashes, or start empty."""
        self.segments = segments or []

    @classmethod
    def of(cls, ids: Ids) -> KnownIds:
        """Create it from the stored form of a small set of ids."""
        return cls([Segment(0, ids=ids)] if ids else None)

    def __bool__(self) -> bool:
        return bool(self.segments)

    def until(self, name: Any, epoch: int | None) -> list[int]:
        """Return the times after the last epoch until which an id is known; empty if it is not known."""
        if not self.segments:
            return []
        known = self._segment(name).ids(epoch).get(name)
        return [] if known is None else _listed(known)

    def add(self, name: Any, until: int, epoch: int | None) -> None:
        """Add a time until which an id is known."""
        if not self.segments:
            self.segments.append(Segment(0, ids={}))
        segment = self._segment(name)
        ids = segment.ids(epoch)
        known = ids.get(name)
        ids[name] = until if known is None else sorted([*_listed(known), until])
        segment.place = None
        if len(ids) > 2 * SEGMENT_IDS:
            at = self.segments.index(segment)
            self.segments[at : at + 1] = _halves(segment.first, ids)

    def forget(self, now: int) -> None:
        """Remove expired ids."""
        for segment in self.segments:
            if segment.is_read or segment.due <= now:
                segment.forget(now)
        self.segments = [segment for segment in self.segments if not segment.is_read or segment.ids(None)]

    def latest(self) -> int:
        """Return the latest expiry of all ids. A segment that is not read counts with the expiry of half of its ids."""
        return max(
            max(map(_last, segment.ids(None).values())) if segment.is_read else segment.due for segment in self.segments
        )

    def _segment(self, name: Any) -> Segment:
        segments = self.segments
        return (
            segments[0] if len(segments) == 1 else segments[max(bisect_right(segments, _hash(name), key=_FIRST) - 1, 0)]
        )


class KnownIdsCodec(SegmentedCodec):
    """Store `KnownIds`: a small set as one map, a large one in segments."""

    def __init__(self) -> None:
        """Ids and times need no conversion for msgpack."""
        # Do not declare the type `Ids`: values of a union type are compared one by one each time they are stored.
        self._whole = msgpack_codec(dict[Any, Any])

    def encode(self, value: KnownIds) -> bytes:
        segments = value.segments
        if len(segments) == 1 and not isinstance(segments[0].place, int):
            return self._whole.encode(segments[0].ids(None))
        return head([self._row(segment) for segment in segments])

    def _row(self, segment: Segment) -> tuple[int, int, Place]:
        if segment.place is None:
            ids = segment.ids(None)
            segment.due = sorted(_last(until) for until in ids.values())[len(ids) // 2]
            segment.place = self._whole.encode(ids)
        return segment.first, segment.due, segment.place

    def decode(self, data: bytes) -> KnownIds:
        return KnownIds.of(self._whole.decode(data))

    def encode_all(self, values: list[Any]) -> list[bytes | None]:
        return [None if value is None else self.encode(value) for value in values]

    def decode_all(self, found: list[bytes | None]) -> list[Any]:
        return [None if ids is None else KnownIds.of(ids) for ids in decode_all(self._whole, found)]

    def from_head(self, segments: list[Any], load: Load) -> KnownIds:
        def read(place: Place) -> Ids:
            ids: Ids = self._whole.decode(load(place) if isinstance(place, int) else place)
            return ids

        return KnownIds([Segment(first, due, place, read) for first, due, place in segments])


def known_after(time: int, ids: Ids) -> Ids:
    """Return the ids that are still known after a time, with their remaining times."""
    if not any(type(until) is list for until in ids.values()):
        return {name: until for name, until in ids.items() if until > time}  # type: ignore[operator]
    return dict(_left(time, ids))


def _left(time: int, ids: Ids) -> Iterator[tuple[Any, int | list[int]]]:
    for name, until in ids.items():
        left = [each for each in _listed(until) if each > time]
        if left:
            yield name, left if len(left) > 1 else left[0]


def _listed(until: int | list[int]) -> list[int]:
    return until if isinstance(until, list) else [until]


def _last(until: int | list[int]) -> int:
    return until[-1] if isinstance(until, list) else until


def _hash(name: Any) -> int:
    # Hash the stored form: an id may be a number that is not a valid key.
    return int(xxh64_intdigest(_encode(name)))


def _halves(first: int, ids: Ids) -> list[Segment]:
    """Divide the ids of a segment in the middle of their hashes."""
    hashes = {name: _hash(name) for name in ids}
    middle = sorted(hashes.values())[len(ids) // 2]
    low = {name: until for name, until in ids.items() if hashes[name] < middle}
    high = {name: until for name, until in ids.items() if hashes[name] >= middle}
    return [Segment(first, ids=low), Segment(middle, ids=high)] if low else [Segment(first, ids=high)]
