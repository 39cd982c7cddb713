"""`tidewheel checkpoints`: list, show, compare, check, rewind and branch the checkpoints of a job."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from tidewheel._checkpoint.garbage import unpublished_sequences
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.tools.key_check import either
from tidewheel._checkpoint.tools.restore import abandoned_name
from tidewheel._checkpoint.tools.savepoint import at_of
from tidewheel._checkpoint.tools.text import decoded
from tidewheel._cli.console import console
from tidewheel._cli.differences import show_differences
from tidewheel._cli.duration import duration
from tidewheel._cli.echo import echo
from tidewheel._cli.failures import show as show_error
from tidewheel._cli.program import load_named_program
from tidewheel._cli.stored import (
    DEFAULT_STATE,
    AsJson,
    JobName,
    JobOrProgram,
    State,
    StateOrProgram,
    shown,
    size,
    when,
)
from tidewheel._engine.job_status import table_versions
from tidewheel._engine.plan_sinks import sinks_of
from tidewheel._program.stored_job import StoredJob

app = typer.Typer(
    help="List, check, compare, rewind and branch a job's checkpoints.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Seq = Annotated[str, typer.Argument(metavar="SEQ|NAME", help="A checkpoint's sequence, or a savepoint's name.")]


@app.command("list")
def list_(job: JobName, state: State = DEFAULT_STATE, as_json: AsJson = False) -> None:
    """List the kept checkpoints and the savepoints.

    For example:

        tidewheel checkpoints list clicks --state s3://bucket/state
    """
    stored = StoredJob(job, state=state)
    rows = [_row(manifest, "") for manifest in stored.list()]
    rows += [_row(pin.state(stored.checkpoints.load_page), pin.name) for pin in stored.savepoints()]
    if as_json:
        for row in rows:
            echo(shown(row))
        return
    table = Table(
        "sequence", "kind", "made", "batch", "events", "files", "state", "savepoint", box=None, pad_edge=False
    )
    for row in rows:
        batch = "" if row["batch"] is None else str(row["batch"])
        cells = [str(row["sequence"]), row["kind"], row["created"], batch, str(row["events"])]
        table.add_row(*cells, str(row["files"]), size(row["bytes"]), row["savepoint"])
    console().print(table)


@app.command()
def program(job: JobName, at: Seq, state: State = DEFAULT_STATE) -> None:
    """Print the source of the program that made a checkpoint, if the job stores it (`Job(keep_for_replay=…)`).

    For example:

        tidewheel checkpoints program clicks 41 > clicks-41.py
    """
    files = StoredJob(job, state=state).program(at_of(at))
    for name, text in files.items():
        if len(files) > 1:
            echo(f"# {name}")
        echo(text.rstrip("\n"))


@app.command()
def show(
    job: JobName,
    state: State = DEFAULT_STATE,
    at: Annotated[
        str | None, typer.Argument(metavar="SEQ|NAME", help="A checkpoint's sequence, or a savepoint's name.")
    ] = None,
) -> None:
    """Show one checkpoint, by default the newest, as JSON.

    For example:

        tidewheel checkpoints show clicks

        tidewheel checkpoints show clicks 41
    """
    manifest = StoredJob(job, state=state).show(at_of(at))
    operators = {
        name: {"kind": info.kind, "codec": info.codec, "version": info.version}
        for name, info in manifest.operators.items()
    }
    described = _row(manifest, "") | {
        "run": manifest.run,
        "parent": manifest.parent,
        "lineage": manifest.lineage,
        "n_shards": manifest.n_shards,
        "parallelism": manifest.parallelism,
        "epoch": manifest.epoch,
        "carried_epoch": manifest.carried_epoch,
        "delivered_epoch": manifest.delivered_epoch,
        "source_offsets": manifest.source_offsets,
        "steps": operators,
        "counts": manifest.counts,
        "cells": {
            name: {"version": cell.version, "value": decoded(cell.value, "msgpack")}
            for name, cell in manifest.cells.items()
        },
        "tables": table_versions(manifest),
        "outputs": {output.sink: output.rows for output in manifest.outputs},
        "published": manifest.published,
        "metadata": manifest.metadata,
    }
    echo(_pretty(described))


@app.command()
def diff(
    job: JobName,
    a: Annotated[str, typer.Argument(metavar="A", help="The earlier checkpoint or savepoint.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The later one.")],
    state: State = DEFAULT_STATE,
    samples: Annotated[int, typer.Option(min=0, help="How many changed keys to show per step.")] = 5,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Only this key: text, or JSON such as 7 or '[\"a\", 1]'.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which keys of which step changed between two checkpoints.

    With --key, only that key is looked up, in all steps. For example:

        tidewheel checkpoints diff clicks 40 41

        tidewheel checkpoints diff clicks 40 41 --key ada
    """
    stored = StoredJob(job, state=state)
    if key is not None:
        changes = either(lambda each: stored.changes(at_of(a), at_of(b), each), key)
        for change in changes.steps:
            text = f"{change.step}: {shown(change.before)} -> {shown(change.after)}"
            echo(shown(change) if as_json else text)
        if not changes.steps and not as_json:
            echo("no difference" if changes.found else f"key {changes.key!r} has no state at either checkpoint")
        return
    differences = stored.diff(at_of(a), at_of(b), samples=samples)
    info = stored.show(at_of(b)).operators | stored.show(at_of(a)).operators
    show_differences(differences, info, as_json=as_json)
    if not differences and not as_json:
        echo("no difference")


@app.command()
def verify(
    job: JobName,
    state: State = DEFAULT_STATE,
    at: Annotated[int | None, typer.Option("--at", metavar="SEQ", help="Only this checkpoint.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check that all files of the checkpoints exist and are undamaged. Exit status 1 if not."""
    verification = StoredJob(job, state=state).verify(at)
    if as_json:
        echo(shown(verification))
    else:
        for problem in verification.problems:
            needed = f" (needed by {', '.join(problem.checkpoints)})" if problem.checkpoints else ""
            show_error(f"{problem.what}{needed}: {problem.found}")
        state_of = f"{len(verification.problems)} problems" if verification.problems else "all good"
        echo(
            f"{verification.checkpoints} checkpoints, {verification.files} files, {size(verification.bytes)} read: {state_of}"
        )
    if verification.problems:
        raise typer.Exit(1)


@app.command()
def restore(
    job: JobName,
    at: Seq,
    state: State = DEFAULT_STATE,
    keep_output: Annotated[
        bool, typer.Option("--keep-output", help="Keep published output, which is then published a second time.")
    ] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="Fence the current run of the job.")] = False,
    cells: Annotated[
        str | None, typer.Option(metavar="URL", help="The URL of the job's cells, if not next to its state.")
    ] = None,
) -> None:
    """Go back to a checkpoint: the next run continues from there, source offsets included.

    The run first removes from its sinks everything that was published after the checkpoint. The abandoned later state
    is kept as a savepoint.
    """
    stored = StoredJob(job, state=state)
    manifest = stored.restore(at_of(at), keep_output=keep_output, take_over=take_over, cells=cells)
    name = abandoned_name(manifest.sequence)
    is_held = any(pin.name == name for pin in stored.savepoints())
    left = f"remain as the savepoint {name}" if is_held else "cannot be read, and are not kept as a savepoint"
    echo(f"checkpoint {manifest.parent} is restored, as commit {manifest.sequence}; the abandoned commits {left}")
    if not manifest.operators:
        echo("this checkpoint is from before the job's first batch: the job begins without state")


@app.command()
def savepoint(
    job: JobName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The savepoint's name.")],
    state: State = DEFAULT_STATE,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SEQ", help="The checkpoint; by default the newest.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Delete the savepoint.")] = False,
) -> None:
    """Name a checkpoint. It is kept, with everything it needs, regardless of retention.

    For example:

        tidewheel checkpoints savepoint clicks before-the-change

        tidewheel checkpoints savepoint clicks before-the-change --drop
    """
    stored = StoredJob(job, state=state)
    if drop:
        stored.drop_savepoint(name)
        echo(f"savepoint {name} dropped")
        return
    echo(f"savepoint {name} of checkpoint {stored.savepoint(name, at).sequence}")


@app.command()
def fork(
    job: JobName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A savepoint of the job.")],
    new_job: Annotated[str, typer.Argument(metavar="NEW_JOB", help="The new job's name.")],
    state: State = DEFAULT_STATE,
) -> None:
    """Create a new job from a savepoint, at the same state URL. It shares the files; nothing is copied.

    For example:

        tidewheel checkpoints fork clicks before-the-change clicks-trial
    """
    fork_job = StoredJob(job, state=state).fork(name, new_job)
    echo(f"job {new_job} begins at {fork_job.show().sequence}, a fork of savepoint {name} of job {job}")


@app.command()
def release(job: JobName, state: State = DEFAULT_STATE) -> None:
    """Release the files that a fork shares with its parent, once the fork needs none of them or no longer exists."""
    released = StoredJob(job, state=state).release()
    echo(f"job {job} no longer shares files of {', '.join(released)}" if released else f"job {job} shared no files")


@app.command()
def gc(
    target: JobOrProgram,
    state: StateOrProgram = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    keep: Annotated[
        int | None, typer.Option(min=1, help="First drop all but this many of the newest checkpoints.")
    ] = None,
    grace: Annotated[
        str, typer.Option(callback=duration, metavar="TIME", help="The minimum age of a file to be deleted.")
    ] = "10 min",
    as_json: AsJson = False,
) -> None:
    """Delete files that no checkpoint and no pin needs. Safe while the job runs.

    With the program, also delete the data files that failed attempts left in the tables of its sinks, once they are older
    than the tables keep removed files.
    """
    program = load_named_program(target, state)
    job = target if program is None else program.name
    stored = StoredJob(job, state=(state or DEFAULT_STATE) if program is None else program.state)
    collected = stored.gc(keep=keep, grace=grace, dry_run=dry_run)
    unpublished = set() if program is None else unpublished_sequences(stored.store, job)
    for name, sink in {} if program is None else sinks_of(program.plan()).items():
        found = sink.collect(job, name, unpublished=unpublished, dry_run=dry_run)
        left = tuple(f"{sink.describe()}: {path}" for path in found)
        collected = msgspec.structs.replace(collected, files=collected.files + left)
    if as_json:
        echo(shown(collected))
        return
    for name in collected.files:
        echo(name)
    verb = "would go" if dry_run else "removed"
    echo(f"{len(collected.files)} files, {size(collected.bytes)} {verb}")


def _row(found: Manifest, savepoint: str) -> dict[str, Any]:
    files = found.files()
    return {
        "sequence": found.sequence,
        "kind": found.kind,
        "created": when(found.id.created_at),
        "batch": found.batch,
        "events": found.event_count,
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "savepoint": savepoint,
    }


def _pretty(value: Any) -> str:
    return msgspec.json.format(shown(value), indent=2)
