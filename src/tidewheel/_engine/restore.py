"""Restoring a job that nothing runs."""

from __future__ import annotations

import secrets

from tidewheel._cells import open_cells
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.restore import restore
from tidewheel._checkpoint.tools.savepoint import At
from tidewheel._engine.job_lease import JobLease


def restore_stopped(
    checkpoints: StreamCheckpoints, cells_url: str, at: At, keep_output: bool, take_over: bool
) -> Manifest:
    """Restore unless a run holds the job; with `take_over` that run finds itself fenced at its next commit."""
    with (
        open_cells(cells_url) as connection,
        JobLease(connection, secrets.token_hex(6)).held(checkpoints.stream_id, take_over),
    ):
        return restore(checkpoints, at, keep_output=keep_output)
