"""Numbered create-if-absent records: the commit chain and the chained cells.

Creating record `s+1` if absent is the one compare-and-exchange on storage. Records are created in ascending
order and removed in ascending order, never the newest, so what stands is always one unbroken run of numbers
that ends at the head.

A writer that slept while its base was removed could create a record below that run. Three rules keep such a
record from being taken for a real one: its writer looks back after creating it, a reader with a hint looks
back after finding nothing further, and record 1 is emptied, not removed, so that nobody begins a chain
anew. Looking back compares bytes, so two different records must never have the same: put a token of the
writer's own into each.

A chain that is over can be removed as a whole. Record 1 goes first and the others follow, oldest first: so a writer that
slept meanwhile finds its number taken, or looks back, finds neither its base nor record 1, and knows that the chain is gone.
"""

from __future__ import annotations

import re

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._core import faults
from tidewheel._storage import Store
from tidewheel.errors import FencedError, NotFound, StorageError

CREATED = faults.declare("chain.created", "a record was created; its writer has not looked back yet")
REMOVING = faults.declare("chain.removing", "a record of a chain that is over was removed, later ones may stand")

_NAME = re.compile(r"(\d{20})\.rec")
_BEGUN = "begun"


class ChainRecord(msgspec.Struct, frozen=True):
    """One record of a chain."""

    number: int
    data: bytes


class TrimmedError(FencedError):
    """The chain has moved on so far that this writer's base is gone; its record is not part of the chain."""


class Chain:
    """The records below one prefix of a store. Safe to use from several threads and processes."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store.at(prefix)
        self._seen: tuple[int, int] = (0, 0)  # The last record known to be genuine: its number and checksum.

    @property
    def url(self) -> str:
        """The URL of the chain's folder."""
        return self._store.url

    def numbers(self) -> list[int]:
        """Return the numbers of the records that stand, ascending."""
        standing = self._listed()
        for at in range(len(standing) - 1, 0, -1):
            if standing[at - 1] != standing[at] - 1:
                return standing[at:]
        return standing

    def head(self, hint: int | None = None) -> ChainRecord | None:
        """Return the newest record, or None if the chain was never begun.

        `hint` is the number of a record that was once the head (0: the chain was empty). Then the records
        after it are tried one by one, which costs a listing less.
        """
        if hint is not None and (record := self._probe(hint)) is not None:
            return self._note(record) if record.number else None
        while standing := self._listed():
            try:
                return self._note(ChainRecord(standing[-1], self.read(standing[-1])))
            except NotFound:
                continue  # It was the newest when listed; now it is trimmed, so there is a newer one.
        return None

    def read(self, number: int) -> bytes:
        """Return the record's bytes; `NotFound` if it was never there or was removed."""
        data = self._store.read(_name(number))
        if not data:
            raise NotFound(f"record {number} of the chain at {self.url} was removed by retention")
        return data

    def append(self, number: int, data: bytes) -> bool:
        """Create record `number`; True if and only if it is ours. The caller's base is `number - 1`.

        False: another writer's record has that number. `TrimmedError`: the base is long gone and nothing
        was appended. `FencedError`: the base is gone and others have gone on; whether ours was among what
        they built on is not known.
        """
        if number < 1 or not data:
            raise StorageError(f"a chain's records start at 1 and are not empty; asked for {number}, {len(data)} bytes")
        seen, checksum = self._seen
        if not self._store.create(_name(number), data):
            return False
        faults.point(CREATED)
        if number > 1 and not self._stands(number - 1, checksum if seen == number - 1 else None):
            self._settle(number, xxh64_intdigest(data))
        self._note(ChainRecord(number, data))
        return True

    def begin(self, number: int, data: bytes, origin: bytes) -> bool:
        """Make a record above 1 the first of a chain that was never begun; True if and only if it is ours.

        `origin` says what the chain begins from. The same again finishes what was broken off; another is refused, with
        False. From the first of its steps on, nobody begins the chain at 1.
        """
        if number < 2:
            raise StorageError(f"a chain that begins elsewhere begins above 1, not at {number}")
        if not self._store.create(_BEGUN, origin) or not self._store.create(_name(1), b""):
            return False
        return self.append(number, data)

    def trim(self, below: int) -> list[int]:
        """Remove the records below a number, ascending and never the newest; return their numbers."""
        removed = []
        for number in self._listed()[:-1]:
            if number >= below:
                break
            if number == 1:
                self._store.write(_name(1), b"")
            else:
                self._store.delete(_name(number))
            removed.append(number)
        return removed

    def remove(self) -> None:
        """Remove the whole chain, for good; again does no harm. Nobody may append to its newest record any more."""
        # Record 1 is first in the listing. What a writer creates meanwhile and leaves behind is listed next time.
        while records := [entry.path for entry in self._store.list() if _NAME.fullmatch(entry.path)]:
            for path in records:
                self._store.delete(path)
                faults.point(REMOVING)
        self._store.delete(_BEGUN)

    def _listed(self) -> list[int]:
        """List every record, also one that a late writer left below the run."""
        matches = ((_NAME.fullmatch(entry.path), entry.size) for entry in self._store.list())
        return [int(match[1]) for match, size in matches if match and size]

    def _probe(self, hint: int) -> ChainRecord | None:
        """Go up from a hint; Record 0 means an empty chain, None that only a listing can tell."""
        seen, checksum = self._seen
        newest = ChainRecord(hint, b"")
        try:
            while True:
                newest = ChainRecord(newest.number + 1, self._store.read(_name(newest.number + 1)))
        except NotFound:
            pass
        if newest.number == 0:
            return newest
        if hint == 0:
            return newest if newest.data and self._stands(1, None) else None
        # The base is read last: if it stands, nothing above it can have been removed, so nothing was missed.
        try:
            base = self._store.read(_name(hint))
        except NotFound:
            return None
        if not base or (seen == hint and xxh64_intdigest(base) != checksum):
            return None
        return newest if newest.data else ChainRecord(hint, base)

    def _stands(self, number: int, checksum: int | None) -> bool:
        try:
            data = self._store.read(_name(number))
        except NotFound:
            return False
        return bool(data) and (checksum is None or xxh64_intdigest(data) == checksum)

    def _settle(self, number: int, checksum: int) -> None:
        """Decide what became of a record whose base is gone: return if it stands, raise if not."""
        standing = self._listed()
        if standing == [number]:
            if self._is_removed():
                self._store.delete(_name(number))
                raise TrimmedError(
                    f"record {number} cannot be appended to the chain at {self.url}: it is over, and removed"
                )
            return  # The newest stands alone: its base was trimmed in the ordinary way, or the chain begins here.
        if standing[-1] == number:
            # It must not stay: it would be the head. This happens when the chain was put back from a backup under its writer.
            self._store.delete(_name(number))
            raise FencedError(
                f"record {number} cannot be appended to the chain at {self.url}, which stands at {standing[-2]}; read the head "
                "before appending"
            )
        # Looked at after the listing: had ours been built on and were now being trimmed, it would go before
        # its successor.
        if number + 1 in standing or not self._stands(number, checksum):
            raise FencedError(
                f"record {number} of the chain at {self.url} was created, but its base is already removed "
                f"and others have gone on to {standing[-1]}; "
                "this writer slept too long and must read the head before it goes on"
            )
        self._store.delete(_name(number))
        raise TrimmedError(
            f"record {number} cannot be appended to the chain at {self.url}, which stands at {standing[-1]}: "
            "its base was removed; this writer slept too long and must read the head before it goes on"
        )

    def _is_removed(self) -> bool:
        try:
            self._store.read(_name(1))
        except NotFound:
            return True
        return False

    def _note(self, record: ChainRecord) -> ChainRecord:
        self._seen = (record.number, xxh64_intdigest(record.data))
        return record


def _name(number: int) -> str:
    return f"{number:020}.rec"
