"""`tidewheel explain`: the history of one key, and the messages that made it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from tidewheel._checkpoint.tools.key_check import either
from tidewheel._cli.echo import echo
from tidewheel._cli.negative_numbers import TakesNegativeNumbers
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, JobName, State, shown, when
from tidewheel._values.records import field_names, has_fields, optional_field

COMMAND_CLASS = TakesNegativeNumbers


def explain(
    job: JobName,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The name of a step with state.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="Text, or JSON: 7, '[\"a\", 1]', '\"7\"'.")],
    state: State = DEFAULT_STATE,
    records: Annotated[
        str | None,
        typer.Option(
            "--records",
            metavar="PROGRAM",
            help="Also run the batches again with this program, and show the messages of the key that reached the step.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the value of a key at each kept checkpoint where it changed. Exit status 1 if it never had state.

    With --records, each change is followed by the messages that reached the step for this key, in order. The batches
    run again in this process, which needs their records at the sources; nothing of the job changes.

    For example:

        tidewheel explain clicks total ada

        tidewheel explain clicks total ada --records clicks.py
    """
    from tidewheel._program.stored_job import StoredJob

    stored = StoredJob(job, state=state)
    history = either(lambda each: stored.history(step, each), key)
    program = None
    if records is not None:
        from tidewheel._cli.program import load_job

        program = load_job(records)
    for version in history.versions:
        messages = None
        if program is not None and version.kind in ("batch", "epoch", "flush"):
            messages = stored.messages(program, version.sequence, step, history.key)
        if as_json:
            fields = msgspec.structs.asdict(version)
            records_of = [{"value": _plain(message.value), "time": message.time} for message in messages or ()]
            echo(shown(fields if messages is None else {**fields, "records": records_of}))
            continue
        value = shown(version.value) if version.found else "no state"
        by = "" if version.difference is None else f"  ({_signed(version.difference)})"
        echo(f"{version.sequence:<8} {when(version.at)}  {value}{by}")
        for message in messages or ():
            at = "" if message.time is None else f" at {when(message.time)}"
            echo(f"{'':8}   {shown(_plain(message.value))}{at}")
    if not history.found:
        echo(f"key {history.key!r} has no state in step {step!r} at any kept checkpoint", err=True)
        raise typer.Exit(1)


def _plain(value: Any) -> Any:
    """Return a record as a dict, so that its fields are shown with their names."""
    return {name: optional_field(value, name) for name in field_names(value)} if has_fields(type(value)) else value


def _signed(difference: object) -> str:
    return f"{difference:+}" if isinstance(difference, int | float) else shown(difference)
