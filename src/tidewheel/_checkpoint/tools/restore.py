"""Restore: a new commit with the content of an older one.

Sequences continue, so no file, output or record is ever written twice. The lineage is new, because local copies of the
abandoned state must not mix with the new one.
"""

from __future__ import annotations

import logging
import secrets
import time

from tidewheel._checkpoint.manifest import CheckpointId, Manifest, Span
from tidewheel._checkpoint.pinning import hold_checkpoint
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.savepoint import At, find
from tidewheel._checkpoint.unpublished import outputs_of, retracted
from tidewheel.errors import CorruptError, NotFound, StateError

_HOLD_NS = 10 * 60 * 10**9
_LOG = logging.getLogger(__name__)


def restored(target: Manifest, newest: Manifest, run: str, keep_output: bool) -> Manifest:
    """Return the commit that follows `newest` and goes back to `target`.

    Output that was published after the target is void: the next run removes it from its sinks before it computes
    anything, unless `keep_output` is set, and needs all sinks that have such output. Output that the target itself had
    to remove is void too. Output of the target that may not be published yet is carried over. Raises `StateError` if an
    earlier restore removed the target's own output, unless `keep_output` is set.
    """
    abandoned = next((span for span in retracted(newest) if outputs_of(target) in span), None)
    if abandoned is not None and not keep_output:
        raise StateError(
            f"checkpoint {target.sequence} of {target.id.stream_id!r} was abandoned by the restore {abandoned.before}: "
            f"its output after {abandoned.after} was retracted and cannot be published again. Restore it without that output "
            "with --keep-output, or continue it as another job with fork"
        )
    sequence = newest.sequence + 1
    # The target may itself be a restore, or the claim after one: output that it has to remove is not in its history
    # either.
    pending = target.retract
    owed = abandoned is None and outputs_of(target) > newest.published
    return target.replace(
        id=CheckpointId(target.id.stream_id, sequence),
        kind="restore",
        run=run,
        outputs=target.outputs if owed else (),
        outputs_of=outputs_of(target),
        published=newest.published,
        retract=None if keep_output else Span(target.sequence if pending is None else pending.after, sequence),
        retracted=retracted(newest),
        sinks=newest.sinks,
        now=max(target.now, newest.now),
        lineage=secrets.token_hex(4),
        parent=target.sequence,
    )


def abandoned_name(sequence: int) -> str:
    """Return the name of the savepoint for the state that the restore of this sequence abandoned."""
    return f"before-restore-{sequence}"


def restore(checkpoints: StreamCheckpoints, at: At, *, keep_output: bool = False) -> Manifest:
    """Go back to a kept checkpoint or a savepoint; return the new commit. The job must not run.

    The abandoned state is kept as the savepoint `abandoned_name` until that is dropped, unless its pages are lost or
    damaged, which can be the reason for the restore.
    """
    run = secrets.token_hex(6)
    target, newest = find(checkpoints, at), find(checkpoints)
    commit = restored(target, newest, run, keep_output)
    # Keep this savepoint even after an error: a commit that seemed to fail may have been made, and a repeated restore
    # finds it.
    try:
        hold_checkpoint(checkpoints, newest.sequence, abandoned_name(commit.sequence), "savepoint")
    except (CorruptError, NotFound) as error:
        _LOG.warning("the abandoned checkpoint %d could not be kept as a savepoint: %s", newest.sequence, error)
    # Held until the new record exists: a concurrent collection must not delete the files that it will need.
    held = f"restoring-{run}"
    if isinstance(at, int):
        hold_checkpoint(checkpoints, at, held, "reader", expires_at=time.time_ns() + _HOLD_NS)
    try:
        checkpoints.commit(commit)
    finally:
        checkpoints.pins.drop(held)
    return commit
