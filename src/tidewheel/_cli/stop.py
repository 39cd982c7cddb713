"""`tidewheel stop`: ask a running job, wherever it runs, to end normally."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel._cli.duration import duration
from tidewheel._cli.echo import echo
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, CellsUrl, JobName, State, shown
from tidewheel._engine import job_status
from tidewheel._storage import open_store
from tidewheel._time.duration import seconds
from tidewheel.errors import TidewheelError


def stop(
    job: JobName,
    state: State = DEFAULT_STATE,
    wait: Annotated[
        str,
        typer.Option(
            metavar="TIME", callback=duration, help='How long to wait for the end; "0 s" only sends the request.'
        ),
    ] = "60 s",
    cells: CellsUrl = None,
    as_json: AsJson = False,
) -> None:
    """Ask a running job, wherever it runs, to commit and publish its batch and end.

    The request applies to the current run only; it does not stop the next start.

    For example:

        tidewheel stop clicks --state s3://bucket/state

    Exit status: 0 the job has ended, was asked to end (`--wait "0 s"`), or was not running; 1 it did not end in time.
    """
    limit = seconds(wait, "--wait")
    holder, ended = job_status.stop(*job_status.find(open_store(state), job, cells), limit)
    if holder is not None and not ended and limit > 0:
        raise TidewheelError(
            f"job {job!r} has not ended within {wait}; {holder.describe()} was asked, and ends when its batch is "
            "committed. Look at `tidewheel status`"
        )
    facts = {"job": job, "run": holder.run if holder else None, "ended": ended}
    if holder is None:
        text = f"{job} does not run"
    else:
        text = f"{job}: {holder.describe()} {'has ended' if ended else 'was asked to end'}"
    echo(shown(facts) if as_json else text)
