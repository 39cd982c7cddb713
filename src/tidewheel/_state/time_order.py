"""TimeOrder: entries in time order, of which only the needed times are read and written."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._state.codec import decode_all, msgpack_codec
from tidewheel._state.segments import Load, Place, SegmentedCodec, head
from tidewheel.errors import CorruptError

SEGMENT_ENTRIES = 512
"""How many entries a segment has after a split; it has at most twice as many."""

Entry = tuple[Any, ...]
"""A tuple that begins with its time."""

_TIME = itemgetter(0)
_FIRST, _LAST = attrgetter("first"), attrgetter("last")
_encode = msgspec.msgpack.Encoder().encode


class Segment:
    """Entries that are stored together."""

    __slots__ = ("_entries", "_read", "first", "last", "place")

    def __init__(
        self,
        first: int,
        last: int,
        place: Place | None = None,
        read: Callable[[Place], list[Entry]] | None = None,
        entries: list[Entry] | None = None,
    ) -> None:
        """Use the first and last time, and either the entries or their place and a function that reads them."""
        self.first, self.last = first, last
        self.place = place
        """None if the entries have changed."""
        self._read, self._entries = read, entries

    @classmethod
    def of(cls, entries: list[Entry]) -> Segment:
        """Return a segment that is not stored yet."""
        return cls(entries[0][0], entries[-1][0], entries=entries)

    @property
    def entries(self) -> list[Entry]:
        """The entries, for reading only."""
        if self._entries is None:
            assert self._read is not None
            assert self.place is not None
            self._entries = self._read(self.place)
        return self._entries

    def changing(self) -> list[Entry]:
        """Return the entries for modification."""
        entries = self.entries
        self.place = None
        return entries

    def stored(self) -> Place:
        """Return the segment's place, or its content if it has changed."""
        if self.place is None:
            self.place = _encode(self._entries)
        return self.place


class TimeOrder:
    """Entries in time order; entries of the same time are in order of arrival."""

    __slots__ = ("segments",)

    def __init__(self, segments: list[Segment] | None = None) -> None:
        """Use segments in time order, or start empty."""
        self.segments = segments or []

    @classmethod
    def of(cls, entries: list[Entry]) -> TimeOrder:
        """Create an order from entries in time order."""
        return cls([Segment.of(entries)] if entries else None)

    def __bool__(self) -> bool:
        return bool(self.segments)

    def __iter__(self) -> Iterator[Entry]:
        for segment in self.segments:
            yield from segment.entries

    @property
    def first(self) -> int:
        """The earliest time; there must be an entry."""
        return self.segments[0].first

    def add(self, entry: Entry) -> None:
        """Insert an entry after all entries that are not later."""
        time, segments = entry[0], self.segments
        if not segments:
            segments.append(Segment.of([entry]))
            return
        at = max(bisect_right(segments, time, key=_FIRST) - 1, 0)
        segment = segments[at]
        entries = segment.changing()
        entries.insert(bisect_right(entries, time, key=_TIME), entry)
        segment.first, segment.last = entries[0][0], entries[-1][0]
        if len(entries) > 2 * SEGMENT_ENTRIES:
            half = len(entries) // 2
            segments[at : at + 1] = [Segment.of(entries[:half]), Segment.of(entries[half:])]

    def near(self, first: int, last: int) -> Iterator[tuple[Segment, int]]:
        """Yield the locations of the entries with times from `first` to `last`, inclusive."""
        segments = self.segments
        for at in range(bisect_left(segments, first, key=_LAST), bisect_right(segments, last, key=_FIRST)):
            segment = segments[at]
            begin = bisect_left(segment.entries, first, key=_TIME)
            for position in range(begin, bisect_right(segment.entries, last, lo=begin, key=_TIME)):
                yield segment, position

    def take(self, until: int) -> list[Entry]:
        """Remove and return the entries up to a time."""
        segments = self.segments
        whole = bisect_right(segments, until, key=_LAST)
        taken = [entry for segment in segments[:whole] for entry in segment.entries]
        del segments[:whole]
        if segments and segments[0].first <= until:
            segment = segments[0]
            entries = segment.changing()
            due = bisect_right(entries, until, key=_TIME)
            taken += entries[:due]
            del entries[:due]
            segment.first = entries[0][0]
        return taken


class TimeOrderCodec(SegmentedCodec):
    """Stores two `TimeOrder`s, the sides of a join; those with many entries in segments.

    Undivided, they are two lists and an empty third one: in state without it the entries are in order of arrival.
    """

    def __init__(self, entry: Any) -> None:
        """Use the type of an entry: a tuple that begins with the time."""
        self._entry = entry
        self._whole = msgpack_codec(list[list[entry]])
        self._entries = msgspec.msgpack.Decoder(list[entry]).decode

    def encode(self, value: list[TimeOrder]) -> bytes:
        if all(len(side.segments) < 2 and not _is_stored(side) for side in value):
            return _encode([*(side.segments[0].entries if side else [] for side in value), []])
        return head(
            [
                (number, segment.first, segment.last, segment.stored())
                for number, side in enumerate(value)
                for segment in side.segments
            ]
        )

    def decode(self, data: bytes) -> list[TimeOrder]:
        return _sides(self._whole.decode(data))

    def encode_all(self, values: list[Any]) -> list[bytes | None]:
        return [None if value is None else self.encode(value) for value in values]

    def decode_all(self, found: list[bytes | None]) -> list[Any]:
        return [None if state is None else _sides(state) for state in decode_all(self._whole, found)]

    def from_head(self, segments: list[Any], load: Load) -> list[TimeOrder]:
        def read(place: Place) -> list[Entry]:
            content = load(place) if isinstance(place, int) else place
            try:
                return self._entries(content)
            except UNDECODABLE as error:
                raise CorruptError(f"a segment of {len(content)} bytes cannot be read ({error})") from None

        state = [TimeOrder(), TimeOrder()]
        for side, first, last, place in segments:
            state[side].segments.append(Segment(first, last, place, read))
        return state

    def __reduce__(self) -> tuple[Callable[[Any], TimeOrderCodec], tuple[Any]]:
        return TimeOrderCodec, (self._entry,)


def nothing() -> list[TimeOrder]:
    """Return two empty sides."""
    return [TimeOrder(), TimeOrder()]


def _is_stored(side: TimeOrder) -> bool:
    return any(isinstance(segment.place, int) for segment in side.segments)


def _sides(state: list[list[Entry]]) -> list[TimeOrder]:
    if len(state) == 2:
        for entries in state:
            entries.sort(key=_TIME)
    return [TimeOrder.of(entries) for entries in state[:2]]
