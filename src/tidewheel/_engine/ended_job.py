"""A job that a bounded run has ended for good: it takes no more data unless a user restores a checkpoint before its end."""

from __future__ import annotations

from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel.errors import StateError


def check_open(checkpoints: StreamCheckpoints, state: str) -> None:
    """Refuse more data if the newest commit seen says that the job has ended, with the ways on; `state` is its state URL."""
    newest = checkpoints.head
    if newest is None or newest.flushed is None:
        return
    job, at = newest.id.stream_id, f"--state {state}"
    # Kept commits have no gaps: if that commit is gone, all earlier ones are gone too.
    before = newest.flushed - 1
    kept = before in checkpoints.sequences()
    back = f"go back before its end with `tidewheel checkpoints restore {job} {before} {at}`, " if kept else ""
    raise StateError(
        f"job {job!r} has ended for good: a run with --until end (until='end') closed all its windows with commit "
        f"{newest.flushed}, and no later run can add data. To continue, {back}start from scratch with `tidewheel reset {job} "
        f"{at}`, or give the program another job name"
    )
