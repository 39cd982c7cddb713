"""`tidewheel state`: read and import the state of a job, whether it runs or not."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Literal

import typer

from tidewheel._checkpoint.tools.key_check import either
from tidewheel._checkpoint.tools.savepoint import at_of
from tidewheel._cli.echo import echo
from tidewheel._cli.explain import show_history
from tidewheel._cli.negative_numbers import TakesNegativeNumbers
from tidewheel._cli.reshard import reshard
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, AtOption, JobName, ProgramState, State, shown
from tidewheel._program.stored_job import StoredJob

app = typer.Typer(
    help="Look up, scan, export and import a job's state.", no_args_is_help=True, rich_markup_mode="markdown"
)
app.command()(reshard)

_IMPORTED = (
    "A Parquet, CSV or JSON lines file, recognised by its name, or a folder of such files. It needs the key's column and "
    "either one column called value or one column for each field."
)

KeyType = Literal["str", "int", "float", "bool"]
StepName = Annotated[str, typer.Argument(metavar="STEP", help="The step's name.")]
Limit = Annotated[int | None, typer.Option(min=0, help="Stop after this many.")]
Prefix = Annotated[str, typer.Option(help="Only text keys that start with this.")]


@app.command()
def keys(
    job: JobName,
    step: StepName,
    state: State = DEFAULT_STATE,
    at: AtOption = None,
    prefix: Prefix = "",
    limit: Limit = None,
) -> None:
    """List a step's keys, one JSON value per line.

    For example:

        tidewheel state keys clicks total --prefix a --limit 10
    """
    stored_keys = StoredJob(job, state=state).keys(step, at=at_of(at), prefix=prefix)
    for key in islice(stored_keys, limit):
        echo(shown(key))


@app.command(cls=TakesNegativeNumbers)
def get(
    job: JobName,
    step: StepName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Text, or JSON: 7, '[\"a\", 1]', '\"7\"'.")],
    state: State = DEFAULT_STATE,
    at: AtOption = None,
    as_json: AsJson = False,
) -> None:
    """Show the committed value of one key as JSON. Exit status 1 if the key has no state.

    With --json, the checkpoint's sequence is shown too. For example:

        tidewheel state get clicks total ada
    """
    stored = StoredJob(job, state=state)
    answer = either(lambda each: stored.get(step, each, at=at_of(at)), key)
    echo(shown(answer) if as_json else shown(answer.value))
    if not answer.found:
        echo(f"key {answer.key!r} has no state in step {step!r} at checkpoint {answer.sequence}", err=True)
        raise typer.Exit(1)


@app.command(cls=TakesNegativeNumbers)
def history(
    job: JobName,
    step: StepName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Text, or JSON: 7, '[\"a\", 1]', '\"7\"'.")],
    state: State = DEFAULT_STATE,
    as_json: AsJson = False,
) -> None:
    """Show the value of a key at each kept checkpoint where it changed, like `tidewheel explain`.

    For example:

        tidewheel state history clicks total ada
    """
    stored = StoredJob(job, state=state)
    show_history(either(lambda each: stored.history(step, each), key), as_json=as_json)


@app.command()
def scan(
    job: JobName,
    step: StepName,
    state: State = DEFAULT_STATE,
    at: AtOption = None,
    prefix: Prefix = "",
    limit: Limit = None,
) -> None:
    """Show a step's keys and values, one JSON object per line.

    For example:

        tidewheel state scan clicks total --at before-the-change
    """
    items = StoredJob(job, state=state).scan(step, at=at_of(at), prefix=prefix)
    for key, value in islice(items, limit):
        echo(shown({"key": key, "value": value}))


@app.command()
def export(
    job: JobName,
    step: StepName,
    path: Annotated[str, typer.Argument(metavar="FILE", help="The Parquet file to write.")],
    state: State = DEFAULT_STATE,
    at: AtOption = None,
) -> None:
    """Write a step's state to a Parquet file: the column key, then the value's fields, or value.

    For example:

        tidewheel state export clicks total totals.parquet
    """
    written = StoredJob(job, state=state).export(step, path, at=at_of(at))
    echo(f"{written} keys in {path}")


@app.command("import")
def import_(
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM[:JOB]", help="The job's program, which declares the types.")
    ],
    step: StepName,
    path: Annotated[str, typer.Argument(metavar="FILE", help=_IMPORTED)],
    state: ProgramState = None,
    key: Annotated[str, typer.Option(metavar="COLUMN", help="The column that holds the key.")] = "key",
    value: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column that holds the state; by default value, or all but the key."),
    ] = None,
    key_type: Annotated[
        KeyType | None,
        typer.Option("--key-type", help="The type of the keys, if the program does not declare it."),
    ] = None,
) -> None:
    """Import the state of a job's step before the job's first batch, from Parquet, CSV or JSON lines.

    The columns must match the type that the step declares (state=, or the type of default=): a plain state is in
    the column value, or in the column that --value names; a record has one column per field. Files from `tidewheel
    state export` match.

    The first line of a CSV file names its columns, and its values are read as the types that the program declares. Keys
    are text by default; if all keys look like numbers, the program or --key-type must declare their type.

    For example:

        tidewheel state import totals.py total old-totals.parquet

        tidewheel state import totals.py total customers.csv --key customer_id --key-type int

        tidewheel state import enrich.py country customers.csv --key user --value country
    """
    from tidewheel._cli.program import load_job
    from tidewheel._imports.import_state import import_state

    job = load_job(program, state)
    imported = import_state(job, step, path, key=key, value=value, key_type=key_type)
    how = "; the keys were read as text (--key-type says otherwise)" if imported.taken_for_text else ""
    echo(f"{imported.keys} keys imported into {step} of {job.name}{how}")
