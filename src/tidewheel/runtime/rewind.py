"""Restoring a job that nothing runs."""

from __future__ import annotations

import secrets

from tidewheel import cells
from tidewheel.checkpoint.manifest import CheckpointState
from tidewheel.checkpoint.restore import restore
from tidewheel.checkpoint.savepoint import At
from tidewheel.checkpoint.store import StreamCheckpoints
from tidewheel.runtime.ownership import Lease, check_free


def restore_stopped(
    checkpoints: StreamCheckpoints, cells_url: str, at: At, keep_output: bool, take_over: bool
) -> CheckpointState:
    """Restore unless a run holds the job; with `take_over` that run finds itself fenced at its next commit."""
    with cells.open(cells_url) as connection:
        if not take_over:
            check_free(Lease(connection, secrets.token_hex(6)), checkpoints.stream_id)
        return restore(checkpoints, at, keep_output=keep_output)
