"""`tidewheel migrate`: continue a Spark query as a job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidewheel._cli.echo import echo
from tidewheel._cli.failures import FAILED
from tidewheel._cli.program import find_job, load_program, split_target
from tidewheel._cli.run_options import with_run_options
from tidewheel._cli.stored import AsJson, shown
from tidewheel._spark.options import RunOptions
from tidewheel.errors import ConfigError

_NAME = "migrations"


@with_run_options(("state", "master", "conf"), environment={"state": "TIDEWHEEL_STATE"})
def migrate(
    options: RunOptions,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The checkpointLocation of the Spark query, which is stopped.")
    ],
    program: Annotated[str, typer.Option("--program", metavar="PROGRAM[:JOB]", help="The program that continues it.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be migrated, and change nothing.")
    ] = False,
    without_offsets: Annotated[
        bool, typer.Option("--without-offsets", help="Migrate state only: sources begin as the program says.")
    ] = False,
    without_source: Annotated[
        list[int] | None,
        typer.Option("--without-source", metavar="N", help="Leave the offsets of this source behind."),
    ] = None,
    without_operator: Annotated[
        list[int] | None,
        typer.Option("--without-operator", metavar="N", help="Leave the state of this operator behind."),
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="How many keys of each step to show.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Make the offsets and the state of a Spark query the first commit of a job.

    Offsets of files and of Kafka continue exactly. State of transformWithState, applyInPandasWithState, aggregations
    and deduplications goes into a stateful_map, stateful_op or reduce. The program can have a dict called migrations:
    by the name of a step, a function that gets a SparkState and returns the step's state.

    For example:

        tidewheel migrate /checkpoints/totals --program totals.py --dry-run

        tidewheel migrate s3a://bucket/checkpoints/totals --program totals.py

    Exit status: 0 everything was migrated or, with --dry-run, can be; 1 otherwise.
    """
    from tidewheel._imports.migrate import migrate as migrated

    path, variable = split_target(program)
    module = load_program(path)
    job = find_job(module, path, variable)
    if options.state is not None:
        job.state = options.state
    migrations = getattr(module, _NAME, {})
    if not isinstance(migrations, dict):
        raise ConfigError(f"{path.name}: {_NAME} is a dict from names of steps to functions, not {migrations!r}")
    found = migrated(
        job,
        checkpoint,
        migrations,
        dry_run=dry_run,
        without_offsets=without_offsets,
        without_sources=without_source or (),
        without_operators=without_operator or (),
        samples=samples,
        master=options.master,
        conf=options.conf,
    )
    if as_json:
        echo(shown({"dry_run": dry_run, **_fields(found)}))
    else:
        for line in lines(found, job.name, dry_run):
            echo(line)
    if found.refused:
        raise typer.Exit(FAILED)


def lines(found: Any, job: str, dry_run: bool) -> list[str]:
    """Return what was migrated as lines of text."""
    told = [
        f"the query committed batch {found.batch}",
        *(f"  {line}" for line in found.query),
        *(f"note: {note}" for note in found.notes),
    ]
    for each in found.sources:
        at = f"{each.files:,} files read" if each.kind == "files" else shown(each.position)
        told.append(f"source {each.name}: continues source {each.source} ({each.kind}): {at}")
    for step in found.steps:
        timers = f", {step.timers:,} timers" if step.timers else ""
        told.append(f"step {step.name}: {step.keys:,} keys{timers} of operator {step.operator} ({step.kind})")
        told += [f"  {shown(old.key)}: {shown(dict(old.values))} -> {shown(state)}" for old, state in step.samples]
        told += [f"  note: {note}" for note in step.notes]
    told += [f"refused: {line}" for line in found.refused]
    end = f"dry run: nothing is changed in job {job}" if dry_run else f"job {job} continues with its next run"
    return [*told, end]


def _fields(found: Any) -> dict[str, Any]:
    steps = [{name: value for name, value in vars(each).items() if name != "samples"} for each in found.steps]
    return {**vars(found), "sources": [vars(each) for each in found.sources], "steps": steps}
