"""Which files nobody needs any more, and their removal.

A file is needed by a kept checkpoint or a pin that refers to it, and may yet be needed if it was written for
a sequence that is not behind the oldest kept checkpoint. Staged output is needed as long as a kept checkpoint
carries it: that of an earlier sequence which may not be published yet. Files with names of another kind are not
ours to remove.
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
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.unpublished import outputs_of
from tidewheel._storage import Entry
from tidewheel.errors import NotFound

GRACE_NS = 10 * 60 * 10**9
"""How old a file must be before it is removed, unless told otherwise."""

_DELETERS = 8


def collectable(
    listing: Iterable[Entry],
    kept: Collection[Manifest],
    pins: Iterable[Pin],
    oldest_kept: int,
    now: int,
    grace: int = GRACE_NS,
) -> list[Entry]:
    """Return the files that may go. Pure.

    `listing` has paths below the job's folder. `now` and `grace` are nanoseconds; a file younger than `grace`
    stays, whoever refers to it: clocks differ, and a short reader holds no pin.
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
    """What a collection removed, or with `dry_run` would have removed."""

    files: tuple[str, ...]
    bytes: int
    expired: tuple[str, ...]
    """Names of the pins that had expired."""


def collect(
    checkpoints: StreamCheckpoints,
    *,
    grace: int = GRACE_NS,
    now: int | None = None,
    dry_run: bool = False,
    keep: int | None = None,
) -> Collected:
    """Remove the files of one job that nobody needs; safe beside a running job, tools and other collectors.

    With `keep`, checkpoints beyond the newest so many are let go first; `dry_run` tells what would go, and lets go of nothing.
    Anything that does not decode, a checkpoint or a pin, stops it before the first removal.
    """
    folder = checkpoints.folder
    if keep is not None and not dry_run:
        checkpoints.retain(keep)
    # In this order. What is listed and needed by a checkpoint or pin made since is found needed. Who pins a
    # checkpoint meanwhile has seen it kept after creating the pin: it is in `kept`, or the pin in `pins`.
    listing = [*folder.list(STATE), *folder.list(STAGED)]
    manifests = _kept(checkpoints)
    pins = checkpoints.pins.all()
    if now is None:
        now = time.time_ns()
    if keep is not None:
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


def _kept(checkpoints: StreamCheckpoints) -> list[Manifest]:
    """Return the kept checkpoints, with their pages read."""
    while True:
        manifests = checkpoints.list()
        try:
            for state in manifests:
                state.needed_names()
            return manifests
        except NotFound:
            # Let go since it was listed, and its page is collected: only a new list can tell. If all are kept, a page is lost.
            if {state.sequence for state in manifests} <= set(checkpoints.sequences()):
                raise
