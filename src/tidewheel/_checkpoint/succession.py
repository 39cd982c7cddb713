"""Rules for the next checkpoint of a chain, so that a defect of the engine raises an error before the commit."""

from __future__ import annotations

from tidewheel._checkpoint.manifest import Manifest
from tidewheel.errors import StateError


def check_follows(parent: Manifest | None, state: Manifest) -> None:
    """Raise `StateError` for a checkpoint that cannot follow `parent` in a job's chain.

    Sequences increase by one from 1, `n_shards` stays, and epochs never go back, except that a `restore` returns to an
    older checkpoint's epoch, and a `reshard` rewrites all state.
    """
    what = f"checkpoint {state.sequence} of {state.id.stream_id!r}"
    expected = 1 if parent is None else parent.sequence + 1
    if state.sequence != expected:
        newest = "there is none yet" if parent is None else f"the newest is {parent.sequence}"
        raise StateError(f"{what} cannot be committed: {newest}, so the next is {expected}")
    if parent is None:
        return
    if state.n_shards != parent.n_shards and state.kind not in ("reshard", "restore"):
        raise StateError(
            f"{what} has {state.n_shards} shards, but the job's state has {parent.n_shards}: "
            "the number is fixed for the life of a job's state; only `tidewheel state reshard` changes it"
        )
    if state.kind != "restore":
        check_epoch(parent, state)


def check_epoch(earlier: Manifest, state: Manifest) -> None:
    """Raise if an epoch is below an earlier checkpoint's, or `None` although there was one."""
    before, after = earlier.epoch, state.epoch
    if before is not None and (after is None or after < before):
        raise StateError(
            f"checkpoint {state.sequence} of {state.id.stream_id!r} has the epoch {after}, but checkpoint "
            f"{earlier.sequence} had {before} already: an epoch never goes back"
        )
