"""`tidewheel explain`: the history of one key, the messages that made it, and the commit that wrote a row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidewheel._checkpoint.tools.key_check import either
from tidewheel._checkpoint.tools.key_history import KeyHistory, KeyVersion
from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Verbose
from tidewheel._cli.negative_numbers import TakesNegativeNumbers
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, JobName, State, shown, when
from tidewheel._core.user_code import described
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._program.stored_job import StoredJob
    from tidewheel._replay.key_trace import TracedMessage
    from tidewheel._replay.replay import WrittenRow

COMMAND_CLASS = TakesNegativeNumbers


def explain(
    job: JobName,
    step: Annotated[
        str, typer.Argument(metavar="STEP", help="The name of a step with state; with --output, the condition.")
    ],
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Text, or JSON: 7, '[\"a\", 1]', '\"7\"'.")] = None,
    state: State = DEFAULT_STATE,
    records: Annotated[
        str | None,
        typer.Option(
            "--records",
            metavar="PROGRAM",
            help="Also run the kept batches again with this program, and show the messages of the key, with their origin.",
        ),
    ] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, help="With --records: only this many batches.")] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", metavar="SINK", help="Find the commits that wrote rows to this sink. Needs --records."
        ),
    ] = None,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="With --records: accept another program than the one that made the commits."),
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the value of a key at each kept checkpoint where it changed. Exit status 1 if it never had state.

    With --records, each change is followed by the messages of the key, in order: the state before and after each, and
    the place of its record at the source. Messages that filters, `deduplicate` or late streams dropped are among them.
    The batches run again in this process, one message at a time, which needs their records at the sources; nothing of
    the job changes.

    With --output, the first argument is a condition, a Python expression of the columns of a row. The kept batches run
    again, and each row that fulfils it is shown with the commit that wrote it. Exit status 1 if there is none.

    For example:

        tidewheel explain clicks total ada

        tidewheel explain clicks total ada --records clicks.py

        tidewheel explain clicks --output out "user == 'ada' and value < 0" --records clicks.py
    """
    from tidewheel._program.stored_job import StoredJob

    stored = StoredJob(job, state=state)
    program = None
    if records is not None:
        from tidewheel._cli.program import load_job

        program = load_job(records)
    if output is not None:
        if program is None or key is not None:
            raise ConfigError("--output takes one condition, and --records PROGRAM: the program that wrote the rows")
        _explain_output(stored.written(program, output, _condition(step), changed=changed), output, as_json)
        return
    if key is None:
        raise ConfigError("explain needs a step and a key of it, or --output SINK and a condition")
    history = either(lambda each: stored.history(step, each), key)
    if program is None:
        if changed or last is not None:
            raise ConfigError("--last and --changed belong to --records PROGRAM: without it, no batch runs")
        show_history(history, as_json=as_json)
    else:
        trace = partial(stored.messages, program, step=history.step, key=history.key, changed=changed)
        _explain_records(stored, trace, history, last, as_json)


def show_history(history: KeyHistory, *, as_json: bool = False) -> None:
    """Print the values of a key. Exit with status 1 if there are none."""
    for version in history.versions:
        echo(shown(msgspec.structs.asdict(version)) if as_json else _line(version))
    _check_found(history)


def _check_found(history: KeyHistory) -> None:
    if not history.found:
        echo(f"key {history.key!r} has no state in step {history.step!r} at any kept checkpoint", err=True)
        raise typer.Exit(1)


def _explain_records(
    stored: StoredJob,
    trace: Callable[[int], list[TracedMessage]],
    history: KeyHistory,
    last: int | None,
    as_json: bool,
) -> None:
    from tidewheel._replay.replay import held_batches

    with held_batches(stored.store, stored.checkpoints) as batches:
        _show_records(stored, trace, history, batches[-last if last else 0 :], as_json)
    _check_found(history)


def _show_records(
    stored: StoredJob,
    trace: Callable[[int], list[TracedMessage]],
    history: KeyHistory,
    batches: Sequence[int],
    as_json: bool,
) -> None:
    from tidewheel._engine.commit import is_computed

    times = {manifest.sequence: manifest.id.created_at for manifest in stored.list()}
    oldest = min(times)
    versions = {version.sequence: version for version in history.versions}
    for sequence in sorted({*versions, *batches}):
        messages = trace(sequence) if sequence in batches else []
        version = versions.get(sequence)
        if version is None and not messages:
            continue
        if as_json:
            fields = (
                {"sequence": sequence, "at": times[sequence]} if version is None else msgspec.structs.asdict(version)
            )
            echo(shown({**fields, "records": [message.described() for message in messages]}))
            continue
        echo(_line(version) if version else f"{sequence:<8} {when(times[sequence])}  unchanged")
        for message in messages:
            echo(f"{'':8}   {_text(message)}")
        if version is not None and sequence == oldest and is_computed(version.kind):
            echo(f"{'':8}   the batch cannot run again: the commit before it is not kept")


def _explain_output(rows: Iterator[WrittenRow], sink: str, as_json: bool) -> None:
    found = False
    for written in rows:
        found = True
        if as_json:
            echo(shown({"sequence": written.sequence, "at": written.at, "row": written.row}))
        else:
            echo(f"{written.sequence:<8} {when(written.at)}  {shown(written.row)}")
    if not found:
        echo(f"no kept commit wrote such a row to {sink!r}", err=True)
        raise typer.Exit(1)


def _condition(text: str) -> Callable[[dict[str, Any]], bool]:
    """Return a condition on rows, from a Python expression that the user has typed."""
    try:
        code = compile(text, "<condition>", "eval")
    except SyntaxError as error:
        raise ConfigError(f"the condition {text!r} is not a Python expression: {error.msg}") from None

    def fulfils(row: dict[str, Any]) -> bool:
        try:
            return bool(eval(code, {}, row))
        except NameError as error:
            raise ConfigError(f"the condition {text!r}: {error}. The columns are {', '.join(row)}") from None
        except Exception as error:
            if None in row.values() and isinstance(error, TypeError | AttributeError):
                return False  # A comparison with a null, or a method of it.
            raise ConfigError(f"the condition {text!r} fails for the row {shown(row)}: {described(error)}") from None

    return fulfils


def _line(version: KeyVersion) -> str:
    value = shown(version.value) if version.found else "no state"
    by = "" if version.difference is None else f"  ({_signed(version.difference)})"
    return f"{version.sequence:<8} {when(version.at)}  {value}{by}"


def _text(message: TracedMessage) -> str:
    at = "" if message.time is None else f" at {when(message.time)}"
    fields = message.described()
    states = [shown(fields[name]) for name in ("before", "after")]
    effect = f"dropped by {message.dropped}" if message.dropped else " -> ".join(states)
    return f"{shown(fields['value'])}{at}  {effect}  [{_origin(message.source, message.place)}]"


def _origin(source: str | None, place: Mapping[str, Any]) -> str:
    if source is None:
        return f"from step {place.get('step')}"
    rest = dict(place)
    file = os.path.relpath(rest.pop("file")) if "file" in rest and _is_below(rest["file"]) else rest.pop("file", None)
    where = f"{file}:{rest.pop('line')}" if file and "line" in rest else file
    return ", ".join([f"{source} {where}" if where else source, *(f"{name} {value}" for name, value in rest.items())])


def _is_below(file: str) -> bool:
    """Return whether a file is in the current folder, so that its path there is shorter."""
    return file.startswith(os.getcwd() + os.sep)


def _signed(difference: object) -> str:
    return f"{difference:+}" if isinstance(difference, int | float | Decimal) else shown(difference)
