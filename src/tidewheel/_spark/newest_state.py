"""The newest state of a job, whether one run or a fleet has it."""

from __future__ import annotations

from tidewheel._checkpoint.fleet_ledger import ORIGIN, run_of
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._storage import Store


def is_divided(found: Manifest) -> bool:
    """Return whether a checkpoint belongs to a fleet itself, whose state is in the chains of its runs, and not to a run."""
    return found.fleet is not None and run_of(found.id.stream_id) == ORIGIN


def newest(store: Store, found: Manifest) -> Manifest:
    """Return the newest state of a job from its newest checkpoint: that one or, for a fleet, the combined state."""
    if not is_divided(found):
        return found
    from tidewheel.fleet._nodes.fleet_state import whole  # Only a fleet's job needs it.

    return whole(store, found.id.stream_id)
