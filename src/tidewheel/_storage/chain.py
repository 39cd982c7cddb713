"""Chains of numbered create-if-absent records: for the commit chain and chained cells.

Creating record `s+1` if absent is the only compare-and-exchange on storage. Records are created and removed in
ascending order, but the newest is never removed, so the existing records are always one range of numbers without gaps
that ends at the head.

A writer that was suspended while its base was removed could create a record below that range. Four rules keep such a
record from being mistaken for a real one: its writer checks its base after creating it, a reader with a hint checks the
hint after finding nothing newer, record 1 is emptied, not removed, so that nobody starts a chain again, and so is the
record just below the range, before any other is removed, so that no late record is next to the range. These checks
compare bytes, so all records must differ: put a token of the writer into each.

A finished chain can be removed as a whole. Record 1 goes first and the others follow, oldest first: so a writer that
was suspended finds its number taken, or checks its base, finds neither it nor record 1, and knows that the chain was
removed.
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
    """The chain has advanced so far that this writer's base was removed; its record is not part of the chain."""


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
        """Return the numbers of the existing records, in ascending order."""
        standing = self._listed()
        for at in range(len(standing) - 1, 0, -1):
            if standing[at - 1] != standing[at] - 1:
                return standing[at:]
        return standing

    def head(self, hint: int | None = None) -> ChainRecord | None:
        """Return the newest record, or None if the chain was never started.

        `hint` is the number of a former head (0: the chain was empty). Then the records after it are tried one by one,
        which saves a listing.
        """
        if hint is not None and (record := self._probe(hint)) is not None:
            return self._note(record) if record.number else None
        while standing := self._listed():
            try:
                return self._note(ChainRecord(standing[-1], self.read(standing[-1])))
            except NotFound:
                continue  # The record was trimmed after the listing, so there is a newer one.
        return None

    def read(self, number: int) -> bytes:
        """Return the record's bytes; raise `NotFound` if it never existed or was removed."""
        data = self._store.read(_name(number))
        if not data:
            raise NotFound(f"record {number} of the chain at {self.url} was removed by retention")
        return data

    def append(self, number: int, data: bytes) -> bool:
        """Create record `number`; return True if and only if it is this writer's. The caller's base is `number - 1`.

        False means that another writer's record has that number. Raises `TrimmedError` if the base was removed long ago
        and nothing was appended, and `FencedError` if the base was removed and others have continued; whether they
        continued from this record is unknown.
        """
        if number < 1 or not data:
            raise StorageError(f"a chain's records start at 1 and are not empty; asked for {number}, {len(data)} bytes")
        seen, checksum = self._seen
        if not self._store.create(_name(number), data):
            return False
        faults.point(CREATED)
        if number > 1 and not self._is_current(number - 1, checksum if seen == number - 1 else None):
            self._settle(number, xxh64_intdigest(data))
        self._note(ChainRecord(number, data))
        return True

    def begin(self, number: int, data: bytes, origin: bytes) -> bool:
        """Create a record above 1 as the first of a new chain; return True if and only if it is this writer's.

        `origin` describes the start of the chain. A repeated call finishes an interrupted one; a call with another
        origin returns False. From its first step on, nobody can start the chain at 1.
        """
        if number < 2:
            raise StorageError(f"a chain that begins elsewhere begins above 1, not at {number}")
        if not self._store.create(_BEGUN, origin) or not self._store.create(_name(1), b""):
            return False
        return self.append(number, data)

    def trim(self, below: int) -> list[int]:
        """Remove the records below a number, never the newest; return their numbers."""
        entries = self._entries()
        removed = [number for number, size in entries[:-1] if size and number < below]
        if not removed:
            return []
        self._store.write(_name(removed[-1]), b"")
        # In ascending order, including records that earlier calls have emptied: a writer that looks back relies on this order.
        for number, size in entries:
            if number >= removed[-1]:
                break
            if number > 1:
                self._store.delete(_name(number))
            elif size:
                self._store.write(_name(number), b"")
        return removed

    def remove(self) -> None:
        """Remove the whole chain permanently; can be repeated. Nobody may append to its newest record any more."""
        # Record 1 is first in the listing. Records that a writer creates in the meantime are in the next listing.
        while records := [entry.path for entry in self._store.list() if _NAME.fullmatch(entry.path)]:
            for path in records:
                self._store.delete(path)
                faults.point(REMOVING)
        self._store.delete(_BEGUN)

    def _listed(self) -> list[int]:
        """List every record, also one that a late writer left below the range."""
        return [number for number, size in self._entries() if size]

    def _entries(self) -> list[tuple[int, int]]:
        """List the number and size of every record, also of emptied ones."""
        matches = ((_NAME.fullmatch(entry.path), entry.size) for entry in self._store.list())
        return [(int(match[1]), size) for match, size in matches if match]

    def _probe(self, hint: int) -> ChainRecord | None:
        """Search upwards from a hint; return record 0 for an empty chain, and None if a listing is needed."""
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
            return newest if newest.data and self._is_current(1, None) else None
        # Read the base last: if it exists, nothing above it can have been removed, so nothing was missed.
        try:
            base = self._store.read(_name(hint))
        except NotFound:
            return None
        if not base or (seen == hint and xxh64_intdigest(base) != checksum):
            return None
        return newest if newest.data else ChainRecord(hint, base)

    def _is_current(self, number: int, checksum: int | None) -> bool:
        try:
            data = self._store.read(_name(number))
        except NotFound:
            return False
        return bool(data) and (checksum is None or xxh64_intdigest(data) == checksum)

    def _settle(self, number: int, checksum: int) -> None:
        """Check a record whose base was removed: return if it is part of the chain, raise if not."""
        entries = self._entries()
        standing = [at for at, size in entries if size]
        if standing == [number]:
            if self._is_removed():
                self._store.delete(_name(number))
                raise TrimmedError(
                    f"record {number} cannot be appended to the chain at {self.url}: it is over, and removed"
                )
            return  # The newest record is the only one: its base was trimmed normally, or the chain starts here.
        if standing[-1] == number and (number - 1, 0) in entries:
            return  # The newest record: its base was emptied by a trim that is removing earlier records.
        if standing[-1] == number:
            # Delete it, or it would be the head. This happens if the chain was restored from a backup while its writer
            # was active.
            self._store.delete(_name(number))
            raise FencedError(
                f"record {number} cannot be appended to the chain at {self.url}, which stands at {standing[-2]}; read the head "
                "before appending"
            )
        # Check after the listing: if a successor of our record existed and both were being trimmed, ours would be
        # removed first. The successor may be emptied before that.
        if any(at == number + 1 for at, _ in entries) or not self._is_current(number, checksum):
            raise FencedError(
                f"record {number} of the chain at {self.url} was created, but its base is already removed "
                f"and others have gone on to {standing[-1]}; "
                "this writer was suspended too long and must read the head before it continues"
            )
        self._store.delete(_name(number))
        raise TrimmedError(
            f"record {number} cannot be appended to the chain at {self.url}, which stands at {standing[-1]}: "
            "its base was removed; this writer was suspended too long and must read the head before it continues"
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
