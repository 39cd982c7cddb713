"""`tidewheel shadow`: run a changed program over the recorded input of a job, and compare."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel._checkpoint.tools.savepoint import at_of
from tidewheel._cli.differences import show_differences
from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Verbose
from tidewheel._cli.program import load_job
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, JobName, State, shown
from tidewheel.errors import ConfigError


def shadow(
    job: JobName,
    program: Annotated[str, typer.Option("--program", metavar="NEW", help="The changed program.")],
    old: Annotated[
        str | None,
        typer.Option("--old", metavar="OLD", help="The program that made the commits: compare its rows one by one."),
    ] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Run over this many of the last batches.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="SAVEPOINT", help="Run over all batches since a savepoint.")
    ] = None,
    state: State = DEFAULT_STATE,
    expect_same: Annotated[bool, typer.Option("--expect-same", help="Exit with status 1 if anything differs.")] = False,
    allow_dropped_state: Annotated[
        list[str] | None, typer.Option("--allow-dropped-state", metavar="STEP", help="As for `tidewheel run`.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="How many keys and rows to show per step and sink.")] = 5,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run a changed program over batches that a job has committed, in this process and without Spark, and compare.

    The changed program begins from the state before these batches, which is converted as in a real start, and reads
    the same records with the same time and cells. It publishes nothing and changes nothing of the job, which may be
    running. With --old, the program that made the commits runs too, and rows are compared one by one; without it, the
    state of each key and the number of rows of each sink are.

    For example:

        tidewheel shadow clicks --program new.py --last 10

        tidewheel shadow clicks --program new.py --old clicks.py --from monday --expect-same
    """
    from tidewheel._engine.commit import operator_infos
    from tidewheel._program.stored_job import StoredJob

    if (last is None) == (since is None):
        raise ConfigError("give either --last N or --from SAVEPOINT: the batches to run over")
    changed = load_job(program)
    if changed.name != job:
        raise ConfigError(f"{program} is the program of job {changed.name!r}, not of {job!r}: give both the same name")
    stored = StoredJob(job, state=state)
    found = stored.shadow(
        changed,
        last=last,
        since=at_of(since),
        old=None if old is None else load_job(old),
        samples=samples,
        allow_dropped_state=allow_dropped_state or (),
    )
    if as_json:
        fields = ("first", "last", "batches", "records", "same", "counts", "rows", "seconds", "old_seconds")
        echo(shown({name: getattr(found, name) for name in fields}))
    else:
        speeds = [("new program", found.seconds), ("old program", found.old_seconds)]
        took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in speeds if seconds is not None)
        echo(f"commits {found.first} to {found.last}: {found.batches} batches, {found.records} records ({took})")
    show_differences(found.state, operator_infos(changed.plan()) | dict(stored.show().operators), as_json=as_json)
    if not as_json:
        for sink, (was, now) in found.counts.items():
            echo(f"sink {sink}: {was} rows, and {now} with the new program")
        for sink, rows in found.rows.items():
            echo(f"sink {sink}: {rows.removed} rows removed, {rows.added} added")
            for sign, some in (("-", rows.removed_samples), ("+", rows.added_samples)):
                for row in some:
                    echo(f"  {sign} {shown(row)}")
        if found.same:
            echo("same: the new program gives the same " + ("state and rows" if old else "state and numbers of rows"))
    if expect_same and not found.same:
        raise typer.Exit(1)
