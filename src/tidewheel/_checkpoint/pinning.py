"""Create pins safely: create the pin first, then check that the pinned checkpoint still exists.

The collector reads the chain, then the pins. If a checkpoint is still kept after its pin was created, a collector
either read the chain before that check and found the checkpoint, or reads the pins after it and finds the pin.
"""

from __future__ import annotations

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.pins import PinKind, pin
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel.errors import NotFound


def hold_checkpoint(
    checkpoints: StreamCheckpoints,
    sequence: int,
    name: str,
    kind: PinKind,
    *,
    expires_at: int | None = None,
    holder: str = "",
) -> Manifest:
    """Pin a kept checkpoint under a new name and return it; raise `NotFound`, without a pin, if it is not kept."""
    state = checkpoints.load(sequence)
    checkpoints.pins.create(pin(name, kind, state, expires_at=expires_at, holder=holder))
    if sequence not in checkpoints.sequences():
        checkpoints.pins.drop(name)
        raise NotFound(
            f"checkpoint {sequence} of {checkpoints.stream_id!r} was deleted while {name!r} was made; choose a newer one"
        )
    return state


def hold_savepoint(
    checkpoints: StreamCheckpoints,
    savepoint: str,
    name: str,
    kind: PinKind,
    *,
    expires_at: int | None = None,
    holder: str = "",
) -> Manifest:
    """Pin the checkpoint of a savepoint under a new name and return it; raise `NotFound` if there is no such savepoint."""
    state = checkpoints.pins.read(savepoint).state(checkpoints.load_page)
    checkpoints.pins.create(pin(name, kind, state, copy=True, expires_at=expires_at, holder=holder))
    try:
        checkpoints.pins.read(savepoint)
    except NotFound:
        checkpoints.pins.drop(name)
        raise
    return state
