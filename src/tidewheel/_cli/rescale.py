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
from tidewheel._spark.option_kinds import AUTO
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
        str | None,
        typer.Argument(
            metavar="N|auto",
            help="The number of tasks; 'auto' leaves it to the run. By default the history is shown.",
        ),
    ] = None,
    cells: CellsUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set how many tasks a job, running or not, uses from its next batch on. No state is rewritten.

    The number stays in effect until the next change, also across restarts. N is between 1 and the job's number of
    shards. `auto` removes the setting: the run uses the parallelism that it was started with, for example `auto`.

    Without N, show the requested number and the number of tasks of the kept commits.

    For example:

        tidewheel rescale clicks 8 --state s3://bucket/state

        tidewheel rescale clicks --state s3://bucket/state
    """
    stored = StoredJob(job, state=state)
    url = cells_of(job_place(stored, cells))
    newest = stored.show()
    if tasks is not None:
        number = None if tasks == AUTO else int(tasks) if tasks.isdecimal() else 0
        if number is not None and not 1 <= number <= newest.n_shards:
            raise ConfigError(
                f"the parallelism of job {job!r} is between 1 and its {newest.n_shards} shards, or {AUTO!r}, not {tasks}"
            )
        order(url, number)
        summary = {"job": job, "ordered": number, "was": newest.parallelism, "after": newest.sequence}
        chosen = "as many tasks as its run chooses" if number is None else f"{number} tasks"
        text = f"{job}: {chosen} from the next batch on (commit {newest.sequence} was made with {newest.parallelism})"
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
    echo(f"{job}: {f'{ordered} tasks are set' if ordered else 'no number of tasks is set'}, {newest.n_shards} shards")
    table = Table("tasks", "from", "to", "batches", "since", box=None, pad_edge=False)
    for stretch in history:
        numbers = (stretch.parallelism, stretch.first, stretch.last, stretch.batches)
        table.add_row(*map(str, numbers), when(stretch.since))
    console().print(table)
