"""The claim: a run's first record in a job's commit chain, which fences the run before it.

A run commits the number after the newest one that it knows. So a run that was replaced by a claim finds its number taken and
commits nothing more, even if it still considers its lease valid.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass

from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.unpublished import carried, taken_back
from tidewheel._core import faults
from tidewheel._engine.job_lease import LEASE_SECONDS, JobLease
from tidewheel.errors import FencedError, StateError

CLAIMED = faults.declare("start.claimed", "the claim is in the chain, nothing else has happened")


@dataclass(frozen=True)
class ClaimTerms:
    """The permissions of a run when it claims a job."""

    take_over: bool = False
    """Fence the run that has the job now, instead of being refused."""
    allow_dropped_state: Collection[str] = ()
    """The steps that the program lacks and whose state may be dropped."""
    drop_unpublished: Collection[str] = ()
    """The sinks whose unpublished output is dropped after a crash, and whose void output stays in place after a restore.

    The start publishes the unpublished output of all other sinks, and retracts their void output.
    """
    lease: float = LEASE_SECONDS
    """How many seconds the lease stays valid without renewal."""


def check_alone(manifest: Manifest) -> None:
    """Refuse to run a job by itself whose state a fleet has."""
    if manifest.fleet is not None:
        raise StateError(
            f"job {manifest.id.stream_id!r} belongs to a fleet, whose nodes hold its shards; start a node with "
            "`tidewheel node`, or give this run a job name or a state URL of its own"
        )


def claim(
    checkpoints: StreamCheckpoints, lease: JobLease, run: str, first: Manifest, drop_unpublished: Collection[str] = ()
) -> Manifest:
    """Append the claim of a run that has acquired the lease, and return it.

    `first` is the state of a job that has no commit yet. The claim repeats the newest commit, with its unpublished and void
    output except for the sinks in `drop_unpublished`. Raise `HeldError` if another run has taken over the lease meanwhile. If
    another run takes the number at the same moment, this run, which has the lease, tries the next number.
    """
    while True:
        lease.check(first.id.stream_id)
        newest = checkpoints.latest()
        claimed = claim_of(newest, first, run, drop_unpublished)
        try:
            claimed = checkpoints.commit(claimed)
        except FencedError:
            if newest is None and checkpoints.latest() is None:
                raise StateError(
                    f"a fork to job {first.id.stream_id!r} was begun and did not end; run the fork again"
                ) from None
            continue
        faults.point(CLAIMED)
        return claimed


def claim_of(newest: Manifest | None, first: Manifest, run: str, drop_unpublished: Collection[str] = ()) -> Manifest:
    """Return the claim that follows the newest commit, without the unpublished and void output of the sinks to drop."""
    base = newest or first
    sequence = 1 if newest is None else newest.sequence + 1
    owed = carried(base)
    owed["outputs"] = tuple(output for output in base.outputs if output.sink not in drop_unpublished)
    owed["sinks"] = taken_back(base, drop_unpublished)
    return base.replace(
        id=CheckpointId(first.id.stream_id, sequence),
        kind="claim",
        run=run,
        host=socket.gethostname(),
        parent=None if newest is None else newest.sequence,
        **owed,
    )
