"""`tidewheel rescale`: change a job's number of tasks while it runs, or show its history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._cli.console import console
from tidewheel._cli.echo import echo
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, CellsUrl, JobName, State, job_place, shown, when
from tidewheel._engine.control import JobCells, cells_of
from tidewheel._engine.control import rescale as order
from tidewheel._program.stored_job import StoredJob
from tidewheel.errors import ConfigError


class Stretch(msgspec.Struct, frozen=True):
    """Consecutive commits that were made with the same number of tasks."""

    parallelism: int
    first: int
    last: int
    since: int
    """When the first of the commits was made, in ns since the Unix epoch."""
    batches: int


def stretches(commits: Iterable[Manifest]) -> list[Stretch]:
    """Return the history of the parallelism from commits in ascending order, skipping commits without tasks."""
    runs: list[Stretch] = []
    for commit in commits:
        if commit.kind not in ("batch", "flush"):
            continue
        if runs and runs[-1].parallelism == commit.parallelism:
            runs[-1] = msgspec.structs.replace(runs[-1], last=commit.sequence, batches=runs[-1].batches + 1)
        else:
            runs.append(Stretch(commit.parallelism, commit.sequence, commit.sequence, commit.id.created_at, 1))
    return runs


def rescale(
    job: JobName,
    state: State = DEFAULT_STATE,
    tasks: Annotated[
        int | None, typer.Argument(metavar="N", help="The number of tasks; by default the history is shown.")
    ] = None,
    cells: CellsUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set how many tasks a job, running or not, uses from its next batch on. No state is rewritten.

    The number stays in effect until the next change, also across restarts. N is between 1 and the job's number of
    shards.

    Without N, show the requested number and the number of tasks of the kept commits.

    For example:

        tidewheel rescale clicks 8 --state s3://bucket/state

        tidewheel rescale clicks --state s3://bucket/state
    """
    stored = StoredJob(job, state=state)
    url = cells_of(job_place(stored, cells))
    newest = stored.show()
    if tasks is not None:
        if not 1 <= tasks <= newest.n_shards:
            raise ConfigError(
                f"the parallelism of job {job!r} is between 1 and its {newest.n_shards} shards, not {tasks}"
            )
        order(url, tasks)
        summary = {"job": job, "ordered": tasks, "was": newest.parallelism, "after": newest.sequence}
        text = (
            f"{job}: {tasks} tasks from the next batch on (commit {newest.sequence} was made with {newest.parallelism})"
        )
        echo(shown(summary) if as_json else text)
        return
    connection = JobCells(url, ())
    try:
        ordered = connection.parallelism()
    finally:
        connection.close()
    history = stretches(stored.list())
    if as_json:
        echo(shown({"job": job, "ordered": ordered, "n_shards": newest.n_shards, "history": history}))
        return
    echo(f"{job}: {f'{ordered} tasks are ordered' if ordered else 'nothing is ordered'}, {newest.n_shards} shards")
    table = Table("tasks", "from", "to", "batches", "since", box=None, pad_edge=False)
    for stretch in history:
        numbers = (stretch.parallelism, stretch.first, stretch.last, stretch.batches)
        table.add_row(*map(str, numbers), when(stretch.since))
    console().print(table)
