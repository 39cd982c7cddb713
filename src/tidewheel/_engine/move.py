"""Keys and all their state, moved from one stopped job to another: each key is in exactly one of them, whatever dies when.

1. Both jobs are claimed. What moves is written to files of the source, and a notice tells the target that it may come.
2. The target is claimed once more: nobody has taken it over before the notice was there.
3. The source commits that it has let go, with the transfer's record in that commit: this decides.
4. The target commits that it has taken the files in, once, by the transfer's id.
5. Files and notice are removed.

Whoever dies after 3 leaves a pending transfer: the next start of either job goes on at 4. Whoever dies before 3 has moved
nothing, and the source's next start removes the files: it has claimed the job, so that the commit can come no more.

A run of the target settles every notice before its first batch. It takes in what the source has let go, and puts a record
into the source's chain where the source has not, so that the commit of 3 can come no more. So the target never has a batch
between 3 and 4, and nothing that it computes is overwritten.

A record of a transfer is stored, so it may be forged: a start opens no store and no cells that it names, unless the user has
given that address for this very job. A move between two state URLs is therefore finished by `finish_moves`, which gets both.

Neither job's program is needed. Keys find their shard anew, so the jobs may differ in n_shards, and they may be at different
state URLs.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from itertools import count, pairwise
from typing import Any

import msgspec

from tidewheel._cells import open_cells
from tidewheel._checkpoint.manifest import CheckpointId, Kind, Manifest
from tidewheel._checkpoint.names import folder, path
from tidewheel._checkpoint.state_files import file_store, opener, range_reader
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.savepoint import job_at
from tidewheel._checkpoint.transfer import TRANSFERS, JobPlace, Transfer, notice_file, payload_file
from tidewheel._checkpoint.unpublished import carried
from tidewheel._core import faults
from tidewheel._core.keys import from_stored, shard_of_stored, to_stored
from tidewheel._core.text import printable
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._core.urls import Url
from tidewheel._engine.claim import claim, claim_of
from tidewheel._engine.commit import next_shards
from tidewheel._engine.compatibility import value_changes
from tidewheel._engine.control import cells_of
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.job_lease import JobLease
from tidewheel._state.beside import owner
from tidewheel._state.bounded_files import BoundedFiles
from tidewheel._state.shard_contents import shard_items
from tidewheel._state.sorted_runs import SortedRuns
from tidewheel._state.state_file import StateFile
from tidewheel._storage import Store, absolute, open_store
from tidewheel._time.shard_epochs import earliest, epoch_of, shards_behind
from tidewheel.errors import ConfigError, CorruptError, FencedError, HeldError, NotFound, StateError, StorageError

WRITTEN = faults.declare("move.written", "what moves is in a file, the target knows nothing")
ANNOUNCED = faults.declare("move.announced", "the target knows that something may come, the source holds it still")
LET_GO = faults.declare("move.let-go", "the source has let go, the target has not taken in")
TAKEN_IN = faults.declare("move.taken-in", "the target has taken in, file and notice are still there")
FILE_DROPPED = faults.declare("move.file-dropped", "the file is removed, the notice is still there")

_KEYS = "keys"
"""The table in which keys alone are sorted."""


def move(
    source: JobPlace, target: JobPlace, *, keys: Iterable[Any] | None = None, shards: Iterable[int] | None = None
) -> Transfer:
    """Move keys, or all keys of some shards, with the state and timers of all operators; return the record.

    Nothing may run either job. `HeldError` says who does. `FencedError`: one of them was taken over meanwhile, and nothing
    is moved. `StateError`: the target lacks an operator, keeps its state otherwise, or holds one of the keys already.
    """
    if (keys is None) == (shards is None):
        raise ConfigError("say what moves: keys, or shards of the source")
    if (source.job, open_store(source.state).url) == (target.job, open_store(target.state).url):
        raise ConfigError(f"job {source.job!r} cannot be both the source and the target of a move")
    if any(place.cells and Url(place.cells).has_login for place in (source, target)):
        raise ConfigError(
            "a move records where the cells are, and their URL has a user or password, which must not be stored: leave it out, "
            "and set ETCDCTL_USER and ETCDCTL_PASSWORD"
        )
    wanted = None if keys is None else {to_stored(key) for key in keys}
    given = (source, target)
    with held(target, given) as taking, held(source, given) as giving:
        with SortedRuns() as entries, SortedRuns() as owners:
            moving = _Moving(entries, owners, wanted, None if shards is None else frozenset(shards), giving.head)
            moving.read(giving.store, taking.head.n_shards)
            check_fits(giving.head, taking.head, moving.tables)
            _check_absent(taking.store, taking.head, moving)
            transfer = _announced(giving, source, target, moving)
            taking.confirm()
            giving.commit("handover", moving.entries, dropped=True, transfer_out=transfer)
        faults.point(LET_GO)
        if taking.is_newest():
            # Whoever takes the target over after this look finds the notice, and takes in what moves.
            with contextlib.suppress(FencedError):
                _take_in(taking, transfer)
    return transfer


def finish_moves(source: JobPlace, target: JobPlace) -> None:
    """Finish the moves between two jobs that were interrupted. Nothing may run either job."""
    given = (source, target)
    with held(target, given), held(source, given):
        pass


def finish(transfer: Transfer, given: Collection[JobPlace]) -> None:
    """Let the target take in what the source has let go, and clean up. Doing it again does no harm."""
    with held(transfer.target, given) as taking:
        _take_in(taking, transfer)


def settle(
    checkpoints: StreamCheckpoints, store: Store, head: Manifest, run: str, given: Collection[JobPlace]
) -> Manifest:
    """Finish what is pending for a job that a run has just claimed, as source or target; return its newest commit.

    `given` are the places that the user has named. What is pending with a source elsewhere is a `StateError`.
    """
    mine = ClaimedJob(store, checkpoints, head, run)
    for entry in store.list(f"{folder(head.id.stream_id)}/{TRANSFERS}"):
        if entry.path.endswith(".incoming"):
            transfer = _noticed(store, entry.path)
            if not _is_given(JobPlace(transfer.source.job, transfer.source.state), given):
                raise _elsewhere(transfer, store, entry.path)
            if _was_let_go(transfer):
                _take_in(mine, transfer)
            else:
                store.delete(entry.path)
        elif entry.path.endswith(".delta"):
            _finish_outgoing(store, head, entry.path, given)
    return mine.head


def _noticed(store: Store, notice: str) -> Transfer:
    try:
        transfer = msgspec.json.decode(store.read(notice), type=Transfer)
    except UNDECODABLE as error:
        raise CorruptError(
            f"{notice} at {store.url} is not the notice of a move ({error}). If no move was interrupted, delete it"
        ) from None
    if transfer.notice != notice:
        raise CorruptError(f"{notice} at {store.url} is the notice of another move, {transfer.notice}; delete it")
    return transfer


def _is_given(place: JobPlace, given: Iterable[JobPlace]) -> bool:
    """Tell whether the user has named the addresses of a stored place. Those in this process's memory are nobody's."""
    return all(
        url is None or Url(url).scheme == "memory" or any(_is_same(url, known) for known in addresses)
        for url, addresses in (
            (place.state, [each.state for each in given]),
            (place.cells, [each.cells for each in given if each.cells]),
        )
    )


def _is_same(url: str, other: str) -> bool:
    return url == other or absolute(url) == absolute(other)


def _elsewhere(transfer: Transfer, store: Store, notice: str) -> StateError:
    source, target = transfer.source, transfer.target
    at = printable(str(Url(source.state)))
    return StateError(
        f"{notice} at {store.url} says that keys move here from job {source.job!r} at {at}. Tidewheel opens only state URLs that "
        f"you give: if this one is right, finish the move with tidewheel state move {shlex.quote(source.job)} "
        f"{shlex.quote(target.job)} --finish --state {shlex.quote(at)} --to-state {store.url}; if you know of no such move, "
        "delete the file"
    )


def check_fits(source: Manifest, target: Manifest, tables: Collection[str]) -> None:
    """Refuse, with a `StateError`, state that the target's program could not go on with. Pure."""
    if target.flushed is not None:
        raise StateError(f"job {target.id.stream_id!r} was ended by a bounded run and takes nothing more")
    for name in sorted({table.partition("/")[0] for table in tables}):
        gives, takes = source.operators.get(name), target.operators.get(name)
        if takes is None:
            raise StateError(
                f"job {target.id.stream_id!r} has no operator {name!r} with state (it has "
                f"{', '.join(sorted(target.operators)) or 'none: run it once'}); a key moves with the state of all its operators"
            )
        if gives is not None and gives.fingerprint != takes.fingerprint:
            kept = [info.fingerprint or "plain states" for info in (gives, takes)]
            raise StateError(
                f"operator {name!r} keeps {kept[0]} in {source.id.stream_id!r} and {kept[1]} in {target.id.stream_id!r}; bring "
                "both to the same first"
            )
        if gives is not None and (gives.codec, gives.version) != (takes.codec, takes.version):
            raise StateError(
                f"operator {name!r} keeps its state as {gives.codec}, version {gives.version} in {source.id.stream_id!r} and as "
                f"{takes.codec}, version {takes.version} in {target.id.stream_id!r}; bring both to the same first"
            )
        if gives is not None and not all(each.is_none for each in value_changes(name, gives, takes).values()):
            shown = [", ".join(str(each.type) for each in info.values) for info in (gives, takes)]
            raise StateError(
                f"operator {name!r} keeps {shown[0]} in {source.id.stream_id!r} and {shown[1]} in {target.id.stream_id!r}; bring "
                "both to the same first"
            )


class _Moving:
    """What moves: the entries by their shards in the source, and the keys that they belong to by their shards in the target."""

    def __init__(
        self,
        entries: SortedRuns,
        owners: SortedRuns,
        wanted: Collection[bytes] | None,
        shards: frozenset[int] | None,
        head: Manifest,
    ) -> None:
        """Take where to sort entries and keys, what is asked for, and the source's newest commit."""
        if shards is None:
            assert wanted is not None
            shards = frozenset(shard_of_stored(key, head.n_shards) for key in wanted)
        self.entries, self.owners, self._wanted, self._shards, self._head = entries, owners, wanted, shards, head
        self.tables: set[str] = set()
        self.keys = 0

    def asked_for(self, stored: bytes) -> bool:
        """Tell whether a key moves, if the source has it."""
        if self._wanted is not None:
            return stored in self._wanted
        return shard_of_stored(stored, self._head.n_shards) in self._shards

    def read(self, store: Store, target_shards: int) -> None:
        """Read the entries from the source; the target has so many shards."""
        fetch = opener(store, self._head.id.stream_id)
        for shard in sorted(self._shards & self._head.shards.keys()):
            for table, key, value in shard_items(self._head.shards[shard], shard, fetch):
                stored = owner(table, key)
                if self.asked_for(stored):
                    self.tables.add(table)
                    self.entries.add(shard, table, key, value)
                    self.owners.add(shard_of_stored(stored, target_shards), _KEYS, stored, b"")
        self.keys = sum(1 for shard in self.owners.shards() for _ in self.moved_to(shard))
        if not self.keys:
            raise StateError(f"none of these keys has state in job {self._head.id.stream_id!r}; nothing is moved")

    def moved_to(self, shard: int) -> Iterator[bytes]:
        """Yield the keys that go to a shard of the target, ascending."""
        return (key for _, items in self.owners.tables(shard) for key, _ in items)


def _check_absent(store: Store, taker: Manifest, moving: _Moving) -> None:
    """Refuse keys that the target holds already: it is not clear which state should win."""
    fetch = opener(store, taker.id.stream_id)
    for shard in sorted(taker.shards.keys() & moving.owners.shards()):
        with SortedRuns() as there:
            for table, key, _ in shard_items(taker.shards[shard], shard, fetch):
                if moving.asked_for(owner(table, key)):
                    there.add(shard, table, owner(table, key), b"")
            for table, items in there.tables(shard):
                # Each side has a key once: one that comes twice is on both.
                for key, following in pairwise(merge((key for key, _ in items), moving.moved_to(shard))):
                    if key == following:
                        raise StateError(
                            f"job {taker.id.stream_id!r} has state of the key {from_stored(key)!r} in {table!r} already; "
                            "move or drop that first"
                        )


class ClaimedJob:
    """A job that this process has claimed."""

    def __init__(self, store: Store, checkpoints: StreamCheckpoints, head: Manifest, run: str) -> None:
        self.store, self.checkpoints, self.head, self.run = store, checkpoints, head, run

    def is_newest(self) -> bool:
        """Tell whether nobody has taken the job over."""
        newest = self.checkpoints.latest()
        return newest is not None and newest.id == self.head.id

    def confirm(self) -> None:
        """Claim the job again; `FencedError` if anybody has taken it over."""
        claimed = claim_of(self.head, self.head, self.run)
        self.checkpoints.commit(claimed)
        self.head = claimed

    def commit(
        self,
        kind: Kind,
        changes: SortedRuns,
        *,
        dropped: bool = False,
        transfer_out: Transfer | None = None,
        transfers_in: tuple[str, ...] | None = None,
        epochs: Mapping[int, int | None] | None = None,
    ) -> None:
        """Commit changes of state as the job's next commit, or that all these keys are dropped; its output stays as it was.

        `transfer_out` is a transfer that the job lets go with this commit. `transfers_in` are the ids of those that it has
        taken in. The records of transfers whose file is gone are dropped: both sides are done with them. `epochs` are, by
        shard, the last epochs that incoming keys got in their former job.
        """
        sequence, job = self.head.sequence + 1, self.head.id.stream_id
        files = DeltaFiles(self.store, self.head, self.run)
        for shard in changes.shards():
            for table, items in changes.tables(shard):
                files.add(shard, table, ((key, None) for key, _ in items) if dropped else items)
        manifest = self.head.replace(
            id=CheckpointId(job, sequence),
            kind=kind,
            run=self.run,
            shards=next_shards(self.head.shards, files.reports(), self.head.n_shards),
            transfers_out={**self._pending_out(), **({} if transfer_out is None else {transfer_out.id: transfer_out})},
            transfers_in=self.head.transfers_in if transfers_in is None else transfers_in,
            behind=shards_behind({**self.head.behind, **(epochs or {})}, self.head.delivered_epoch),
            parent=self.head.sequence,
            **carried(self.head),
        )
        self.checkpoints.commit(manifest)
        self.head = manifest

    def _pending_out(self) -> dict[str, Transfer]:
        files = {entry.path for entry in self.store.list(f"{folder(self.head.id.stream_id)}/{TRANSFERS}")}
        return {number: transfer for number, transfer in self.head.transfers_out.items() if transfer.payload in files}


@contextlib.contextmanager
def held(place: JobPlace, given: Collection[JobPlace] = ()) -> Iterator[ClaimedJob]:
    """Claim a job that exists and that nothing runs, without its program; its unfinished transfers are finished first.

    `given` are the places that the user has named, beside this one.
    """
    store = open_store(place.state)
    checkpoints = job_at(store, place.job)
    newest = checkpoints.latest()
    assert newest is not None, "a job that is there has a commit"
    token = secrets.token_hex(6)
    with open_cells(cells_of(place)) as connection:
        lease = JobLease(connection, token)
        with lease.held(place.job):
            head = claim(checkpoints, lease, token, newest)
            yield ClaimedJob(store, checkpoints, settle(checkpoints, store, head, token, (place, *given)), token)


def _announced(giving: ClaimedJob, source: JobPlace, target: JobPlace, moving: _Moving) -> Transfer:
    """Write what moves, and tell the target that it may come."""
    number, head = secrets.token_hex(8), giving.head
    files = BoundedFiles(file_store(giving.store, source.job, (payload_file(number, place) for place in count())))
    for shard in moving.entries.shards():
        for table, items in moving.entries.tables(shard):
            files.add(shard, table, items)
    files.finish()
    epoch = earliest(epoch_of(shard, head.delivered_epoch, head.behind) for shard in moving.entries.shards())
    file, *more = files.files
    transfer = Transfer(number, giving.run, source, target, file, moving.keys, epoch, tuple(more))
    faults.point(WRITTEN)
    open_store(target.state).create(transfer.notice, msgspec.json.encode(transfer))
    faults.point(ANNOUNCED)
    return transfer


def _was_let_go(transfer: Transfer) -> bool:
    """Tell whether the source has committed the transfer, which is what decides. If it has not, it never will after this."""
    checkpoints = StreamCheckpoints(open_store(transfer.source.state), transfer.source.job)
    while True:
        newest = checkpoints.latest()
        if newest is None or newest.run != transfer.run or transfer.id in newest.transfers_out:
            return newest is not None and transfer.id in newest.transfers_out
        # The process that moves may be at work: this takes the number of its commit.
        with contextlib.suppress(FencedError):
            checkpoints.commit(claim_of(newest, newest, secrets.token_hex(6)))


def _take_in(taking: ClaimedJob, transfer: Transfer) -> None:
    known = taking.head.transfers_in
    from_store = open_store(transfer.source.state)
    if transfer.id not in known:
        with SortedRuns() as changes:
            read_range = range_reader(from_store, transfer.source.job)
            for file in (StateFile(read_range, ref) for ref in transfer.files):
                for table, key, value in (item for shard in file.shards() for item in file.items(shard)):
                    changes.add(shard_of_stored(owner(table, key), taking.head.n_shards), table, key, value)
            # An id is needed as long as its notice is there.
            needed = [number for number in known if _exists(taking.store, notice_file(transfer.target.job, number))]
            head = taking.head
            epochs = {
                shard: earliest((transfer.epoch, epoch_of(shard, head.delivered_epoch, head.behind)))
                for shard in changes.shards()
            }
            taking.commit("import", changes, transfers_in=(*needed, transfer.id), epochs=epochs)
        faults.point(TAKEN_IN)
    # In this order: as long as the file is there, the target's notice and so its memory of the id are too.
    for ref in reversed(transfer.files):
        from_store.delete(path(transfer.source.job, ref.name))
    faults.point(FILE_DROPPED)
    taking.store.delete(transfer.notice)


def _finish_outgoing(store: Store, head: Manifest, payload: str, given: Collection[JobPlace]) -> None:
    """Finish the transfer of a file if this job has committed it. If not, remove the file: the commit cannot come any more."""
    number = payload.rpartition("/")[2].removesuffix(".delta").partition("-")[0]
    transfer = head.transfers_out.get(number)
    if transfer is None:
        store.delete(payload)
        return
    if payload != transfer.payload:
        return  # One of several, of which the last to go is looked at.
    # A target that runs, is out of reach, or is at an address that nobody has given here, takes it in when it starts next.
    source = JobPlace(transfer.source.job, transfer.source.state)
    if _is_given(source, given) and _is_given(transfer.target, given):
        with contextlib.suppress(HeldError, StorageError):
            finish(transfer, given)


def _exists(store: Store, file: str) -> bool:
    try:
        store.read(file)
    except NotFound:
        return False
    return True
