"""Verify that all files and pages that a job's checkpoints refer to exist and are undamaged."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidewheel._checkpoint.encoding import decode
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import CHAIN
from tidewheel._checkpoint.pages import StoredPage
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._checkpoint.state_files import opener
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.table_files import read_part
from tidewheel._checkpoint.tools.savepoint import savepoints
from tidewheel._state.references import FileRef
from tidewheel._storage import Store
from tidewheel._storage.chain import Chain
from tidewheel.errors import CorruptError, NotFound, StateError, StorageError

_BAD = (CorruptError, NotFound, StateError, StorageError)


class Problem(msgspec.Struct, frozen=True):
    """A missing or damaged file or record, and the checkpoints that need it."""

    what: str
    """A file's name below the job's folder, or a record of the chain."""
    found: str
    checkpoints: tuple[str, ...]
    """Sequences and names of savepoints."""


class Verification(msgspec.Struct, frozen=True):
    """The result of a verification: the checked objects and the problems."""

    checkpoints: int
    files: int
    bytes: int
    problems: tuple[Problem, ...]


def verify(store: Store, checkpoints: StreamCheckpoints, at: int | None = None) -> Verification:
    """Read all files of the kept checkpoints and savepoints of a job, or of one checkpoint, and verify all checksums."""
    job = checkpoints.stream_id
    states, problems = _states(checkpoints, at)
    users: dict[FileRef, list[str]] = {}
    pages: set[FileRef] = set()
    tables: set[FileRef] = set()
    for label, state in states:
        pages |= state.pages()
        tables |= state.table_files()
        files, unread = _files(state)
        if unread is not None:
            problems.append(Problem(f"{CHAIN}, record {label}", unread, (label,)))
        for file in files | state.pages() | state.table_files():
            users.setdefault(file, []).append(label)
    read = 0
    for file in sorted(users, key=lambda ref: ref.name):
        try:
            if file in pages:
                # Do not use the cache of pages: the current content of the store counts.
                dict(StoredPage(checkpoints.folder.read(file.name), file, checkpoints.folder.url))
            elif file in tables:
                read_part(store, job, file)
            else:
                opener(store, job)(file).verify()
            read += file.size
        except _BAD as error:
            if isinstance(error, NotFound) and not _still_kept(checkpoints, users[file]):
                continue
            problems.append(Problem(file.name, str(error), tuple(users[file])))
    return Verification(len(states), len(users), read, tuple(problems))


def _files(state: Manifest) -> tuple[frozenset[FileRef], str | None]:
    """Return the state files of a checkpoint, as far as its pages are readable, and any problem other than its pages."""
    files = state.driver.files()
    for group in ShardMap.of(state.shards, state.n_shards).groups:
        try:
            files |= group.files()
        except NotFound:
            continue  # A page, which is reported under its own name.
        except _BAD as error:
            if group.page is None or group.page.name not in str(error):
                return files, str(error)
    return files, None


def together(verifications: Iterable[Verification]) -> Verification:
    """Merge several verifications into one."""
    parts = list(verifications)
    return Verification(
        sum(each.checkpoints for each in parts),
        sum(each.files for each in parts),
        sum(each.bytes for each in parts),
        tuple(problem for each in parts for problem in each.problems),
    )


def _states(checkpoints: StreamCheckpoints, at: int | None) -> tuple[list[tuple[str, Manifest]], list[Problem]]:
    if at is not None:
        return [(str(at), checkpoints.load(at))], []
    manifests: list[tuple[str, Manifest]] = []
    problems: list[Problem] = []
    chain = Chain(checkpoints.folder, CHAIN)
    for number in chain.numbers():
        where = f"in record {number}"
        try:
            data = chain.read(number)
            manifests.append((str(number), decode(data, checkpoints.stream_id, where, checkpoints.load_page)))
        except NotFound:
            continue  # A run dropped it after the listing.
        except _BAD as error:
            problems.append(Problem(f"{CHAIN}, record {number}", str(error), (str(number),)))
    try:
        manifests += [(pin.name, pin.state(checkpoints.load_page)) for pin in savepoints(checkpoints)]
    except _BAD as error:
        problems.append(Problem("pins", str(error), ()))
    return manifests, problems


def _still_kept(checkpoints: StreamCheckpoints, labels: list[str]) -> bool:
    """Return whether any of these still exists: a concurrent run may have dropped it during the check."""
    records = {str(number) for number in Chain(checkpoints.folder, CHAIN).numbers()}
    return any(label in records or not label.isdigit() for label in labels)
