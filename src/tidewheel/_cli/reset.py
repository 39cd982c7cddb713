"""`tidewheel reset`: delete a job's state, so that it starts from the beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel._cli.echo import echo
from tidewheel._cli.program import load_named_program
from tidewheel._cli.stored import DEFAULT_STATE, CellsUrl, JobOrProgram, StateOrProgram, job_place, size
from tidewheel.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from tidewheel._checkpoint.job_place import JobPlace
    from tidewheel._engine.reset import Holdings
    from tidewheel._program.job import Job


def reset(
    target: JobOrProgram,
    state: StateOrProgram = None,
    output: Annotated[
        bool, typer.Option("--output", help="Also delete the output of the job's sinks; needs the program.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    cells: CellsUrl = None,
) -> None:
    """Delete a job's state, so that its next start begins without state. Shows what would be deleted and asks for confirmation.

    This deletes checkpoints, savepoints and state, and empties the job's cells. Output that its sinks published stays,
    unless `--output` is given. The figures of its runs, which `top` and the page show, stay until they expire (`run
    --history`). A running job is refused.

    For example:

        tidewheel reset clicks --state file:///data/state

        tidewheel reset clicks.py --output --yes

    Exit status: 0 deleted, 1 an error or not confirmed, 2 the job runs.
    """
    from tidewheel._engine.plan_sinks import sinks_of
    from tidewheel._engine.reset import check_stopped, holdings
    from tidewheel._engine.reset import reset as remove
    from tidewheel._storage import open_store

    job = load_named_program(target, state)
    if job is None and output:
        raise ConfigError(
            f"only the program knows its sinks: to delete their output, name it instead of {target}, as in "
            "tidewheel reset PROGRAM.py --output"
        )
    place = _place(job, target, state, cells)
    check_stopped(place)
    held = holdings(open_store(place.state), place.job)
    sinks = sinks_of(job.plan()) if job is not None and output else {}
    if held.sequence is None and not sinks:
        raise NotFound(f"there is no state of a job {place.job!r} at {held.state}; nothing to delete")
    for line in lines(held):
        echo(line)
    for name, sink in sinks.items():
        echo(f"  sink {name!r}: {sink.published(place.job, name) or f'nothing to delete ({sink.describe()})'}")
    if not yes:
        typer.confirm("Delete this permanently?", abort=True)
    remove(place)
    for name, sink in sinks.items():
        if sink.published(place.job, name):
            sink.remove(place.job, name)
    echo(f"{place.job}: deleted; the next start begins without state")


def lines(held: Holdings) -> list[str]:
    """Return a description of what would be deleted, as lines."""
    if held.sequence is None:
        return [f"job {held.job} has no state at {held.state}"]
    text = [
        f"job {held.job} at {held.state}:",
        f"  {held.checkpoints} checkpoints, the newest is {held.sequence}, after {held.events:,} events",
        f"  {held.files:,} files, {size(held.bytes)}",
    ]
    if held.savepoints:
        text.append(f"  savepoints: {', '.join(held.savepoints)}")
    return text


def _place(job: Job | None, name: str, state: str | None, cells: str | None) -> JobPlace:
    from tidewheel._checkpoint.job_place import JobPlace
    from tidewheel._program.stored_job import StoredJob

    if job is None:
        return job_place(StoredJob(name, state=state or DEFAULT_STATE), cells)
    return JobPlace(job.name, job.state, cells or job.cells_at)
