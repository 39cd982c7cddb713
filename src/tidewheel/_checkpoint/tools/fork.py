"""Forks: a new job that starts from another job's savepoint and shares its files."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

import msgspec

from tidewheel._checkpoint.encoding import encode
from tidewheel._checkpoint.manifest import CheckpointId, ForkOrigin, Manifest, PinnedTable
from tidewheel._checkpoint.names import folder, shared
from tidewheel._checkpoint.pinning import hold_savepoint
from tidewheel._checkpoint.pins import Pin, Pins
from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints
from tidewheel._checkpoint.tools.savepoint import job_at, savepoints
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._storage import Store
from tidewheel.errors import NotFound, StateError


def forked(state: Manifest, job: str, run: str, savepoint: str) -> Manifest:
    """Return the first commit of a new job that continues from another job's checkpoint.

    Its sequence follows the parent's, because the parts of shards are labelled with it. It has the parent's offsets,
    but not its output.
    """
    parent = state.id.stream_id
    return state.replace(
        id=CheckpointId(job, state.sequence + 1),
        kind="fork",
        run=run,
        shards={shard: shared_parts(parent, parts) for shard, parts in state.shards.items()},
        driver=shared_parts(parent, state.driver),
        tables=shared_tables(parent, state.tables),
        outputs=(),
        outputs_of=None,
        published=state.sequence,
        retract=None,
        retracted=(),
        sinks={},
        forked_from=ForkOrigin(parent, savepoint),
        lineage=secrets.token_hex(4),
        parent=None,
    )


def fork(store: Store, job: str, savepoint: str, new_job: str) -> Manifest:
    """Start `new_job` from a savepoint of `job`, at the same state URL; return its first commit.

    The files still belong to the parent; a pin in the parent keeps them for the fork.
    """
    parent = job_at(store, job)
    if savepoint not in {pin.name for pin in savepoints(parent)}:
        raise NotFound(_no_savepoint(store, parent, savepoint, new_job))
    run = secrets.token_hex(6)
    child = StreamCheckpoints(store, new_job)
    if child.latest() is not None:
        raise StateError(f"there is a job {new_job!r} at {store.url} already; a fork needs a name of its own")
    name = _pin_name(new_job)
    parent.pins.drop(name)
    state = hold_savepoint(parent, savepoint, name, "fork", holder=new_job)
    commit = forked(state, new_job, run, savepoint)
    for owner, files in _owned(commit.files()).items():
        if owner != folder(job):
            pins = Pins(store.at(owner))
            pins.drop(name)
            pins.create(Pin(name, "fork", state.sequence, files, encode(state), holder=new_job))
    child.begin(commit, origin=f"{job} {savepoint}")
    return commit


def _no_savepoint(store: Store, parent: StreamCheckpoints, savepoint: str, new_job: str) -> str:
    """Return the error text for a missing savepoint, with the commands that create it. A number means a checkpoint."""
    job, known = parent.stream_id, [pin.name for pin in savepoints(parent)]
    there = f"there are {', '.join(map(repr, known))}" if known else "there are none"
    name, at = (f"before-{new_job}", f" --at {savepoint}") if savepoint.isdigit() else (savepoint, "")
    again = f", then tidewheel checkpoints fork {job} {name} {new_job} --state {store.url}" if at else ""
    return (
        f"job {job!r} has no savepoint {savepoint!r}, and a fork begins from one; {there}. Make it with: "
        f"tidewheel checkpoints savepoint {job} {name}{at} --state {store.url}{again}"
    )


def release(store: Store, job: str) -> list[str]:
    """Release the files that a fork holds in other jobs; return the folders of those jobs.

    Refused while a checkpoint or pin of the fork needs any of these files. Once none does, none will again: a fork's
    commits refer only to its own files and those of its newest checkpoint. A deleted fork needs nothing.
    """
    fork = StreamCheckpoints(store, job)
    files = {file.name for state in fork.list() for file in state.files()}
    files |= {name for pin in fork.pins.all() for name in pin.files}
    needed = sorted(name for name in files if name.startswith("/") and name.split("/", 2)[1] != folder(job))
    if needed:
        raise StateError(
            f"job {job!r} still needs {len(needed)} files of other jobs, such as {needed[0]}; it needs them no more when every "
            "shard has a snapshot of its own and its older checkpoints and savepoints are gone: tidewheel checkpoints gc --keep"
        )
    name, released = _pin_name(job), []
    for stream in CheckpointStore(store).streams():
        pins = Pins(store.at(folder(stream)))
        if any(pin.name == name for pin in pins.all()):
            pins.drop(name)
            released.append(folder(stream))
    return released


def _pin_name(job: str) -> str:
    return f"fork-{folder(job)}"


def shared_parts(stream: str, parts: ShardParts) -> ShardParts:
    """Return a shard's parts with the file names that other streams at the same state URL use."""

    def part(ref: PartRef) -> PartRef:
        # Keep everything else: local copies, which fleet runs share, need the start of a merged run to know its
        # content.
        return msgspec.structs.replace(ref, file=_shared_file(stream, ref.file))

    return ShardParts(None if parts.snapshot is None else part(parts.snapshot), tuple(map(part, parts.deltas)))


def shared_tables(stream: str, tables: Mapping[str, PinnedTable]) -> dict[str, PinnedTable]:
    """Return pinned tables with the file names that other streams at the same state URL use."""
    return {
        name: msgspec.structs.replace(table, files=tuple(_shared_file(stream, file) for file in table.files))
        for name, table in tables.items()
    }


def _shared_file(stream: str, file: FileRef) -> FileRef:
    return FileRef(shared(stream, file.name), file.size, file.checksum)


def _owned(files: Iterable[FileRef]) -> dict[str, tuple[str, ...]]:
    """Return the files by the folder of their job, with that job's names: the savepoint may itself be of a fork."""
    owned: dict[str, tuple[str, ...]] = {}
    for file in sorted(files, key=lambda ref: ref.name):
        _, owner, name = file.name.split("/", 2)
        owned[owner] = (*owned.get(owner, ()), name)
    return owned
