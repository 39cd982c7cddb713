"""Find and delete unused files.

A file is needed if a kept checkpoint or a pin refers to it, and may still be needed if it was written for a sequence
that is not older than the oldest kept checkpoint. Staged output is needed as long as a kept checkpoint carries it:
output of an earlier sequence which may not be published yet. Files with other kinds of names are never deleted.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from tidewheel._checkpoint import retention
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import STAGED, STATE, sequence_of
from tidewheel._checkpoint.pins import Pin
from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints
from tidewheel._checkpoint.unpublished import outputs_of
from tidewheel._storage import Entry, Store
from tidewheel.errors import NotFound

GRACE_NS = 10 * 60 * 10**9
"""The default minimum age of a file to be deleted."""

_DELETERS = 8


def collectable(
    listing: Iterable[Entry],
    kept: Collection[Manifest],
    pins: Iterable[Pin],
    oldest_kept: int,
    now: int,
    grace: int = GRACE_NS,
) -> list[Entry]:
    """Return the files that can be deleted.

    `listing` has paths below the job's folder. `now` and `grace` are nanoseconds. A file younger than `grace` always
    stays, because clocks differ and short readers hold no pin.
    """
    needed = {name for state in kept for name in state.needed_names()}
    needed.update(name for pin in pins if pin.holds(now) for name in pin.files)
    unpublished = {outputs_of(state) for state in kept if state.outputs}
    garbage = []
    for entry in listing:
        sequence = sequence_of(entry.path)
        if sequence is None or sequence >= oldest_kept or entry.path in needed:
            continue
        if entry.path.startswith(f"{STAGED}/") and sequence in unpublished:
            continue
        if entry.modified * 1e9 + grace <= now:
            garbage.append(entry)
    return garbage


class Collected(msgspec.Struct, frozen=True):
    """The files that a collection deleted, or with `dry_run` would have deleted."""

    files: tuple[str, ...]
    bytes: int
    expired: tuple[str, ...]
    """The names of the expired pins."""


def collect(
    checkpoints: StreamCheckpoints,
    *,
    grace: int = GRACE_NS,
    now: int | None = None,
    dry_run: bool = False,
    keep: int | None = None,
) -> Collected:
    """Delete the unused files of one job. Safe while the job, tools and other collectors run.

    With `keep`, drop all but that many of the newest checkpoints first; with `dry_run`, only report. A checkpoint or
    pin that does not decode stops the collection before the first deletion.
    """
    folder = checkpoints.folder
    if keep is not None and not dry_run:
        checkpoints.retain(keep)
    # The order matters. A listed file that a newer checkpoint or pin needs is found to be needed. A process that pins a
    # checkpoint in the meantime has seen it kept after creating the pin, so the checkpoint is in `kept` or the pin in
    # `pins`.
    listing = [*folder.list(STATE), *folder.list(STAGED)]
    manifests = _kept(checkpoints)
    pins = checkpoints.pins.all()
    if now is None:
        now = time.time_ns()
    # Without `dry_run`, all that the chain has are kept: a running job may have made more since the others were dropped.
    if keep is not None and dry_run:
        oldest = retention.oldest_kept([state.sequence for state in manifests], keep, pins, now)
        manifests = [state for state in manifests if oldest is not None and state.sequence >= oldest]
    if not manifests:
        return Collected((), 0, ())
    garbage = collectable(listing, manifests, pins, manifests[0].sequence, now, grace)
    expired = [pin.name for pin in pins if pin.expires_at is not None and pin.expires_at + grace <= now]
    if not dry_run:
        with ThreadPoolExecutor(_DELETERS) as deleters:
            list(deleters.map(folder.delete, [entry.path for entry in garbage]))
        for name in expired:
            checkpoints.pins.drop(name)
    return Collected(tuple(entry.path for entry in garbage), sum(entry.size for entry in garbage), tuple(expired))


def unpublished_sequences(store: Store, job: str) -> set[int]:
    """Return the sequences whose output a job, or a run of its fleet, may still have to publish."""
    known = CheckpointStore(store)
    heads = [known.latest(job)]
    if heads[0] is not None and heads[0].fleet is not None:
        heads += [known.latest(stream) for stream in known.streams() if stream.startswith(f"{job}/")]
    return {outputs_of(head) for head in heads if head is not None and head.outputs}


def _kept(checkpoints: StreamCheckpoints) -> list[Manifest]:
    """Return the kept checkpoints, with their pages read."""
    while True:
        manifests = checkpoints.list()
        try:
            for state in manifests:
                state.needed_names()
            return manifests
        except NotFound:
            # The checkpoint may have been dropped after the listing and its page deleted: list again. If all are still
            # kept, a page is lost.
            if {state.sequence for state in manifests} <= set(checkpoints.sequences()):
                raise
