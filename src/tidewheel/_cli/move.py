"""`tidewheel state move`: move keys with all their state from one stopped job to another."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidewheel._checkpoint.transfer import JobPlace
from tidewheel._cli.echo import echo
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, JobName, State, key_candidates, shown
from tidewheel._engine.move import finish_moves
from tidewheel._engine.move import move as move_keys
from tidewheel._program.stored_job import StoredJob
from tidewheel.errors import ConfigError, StateError


def move(
    source: JobName,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The job that the keys move to.")],
    state: State = DEFAULT_STATE,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="Text, or JSON: 7, '[\"a\", 1]', '\"7\"'.")
    ] = None,
    shards: Annotated[
        list[int] | None,
        typer.Option("--shard", min=0, help="All keys of this shard of JOB; can be repeated."),
    ] = None,
    to_state: Annotated[
        str | None, typer.Option(metavar="URL", help="TARGET's state URL, if it differs from JOB's.")
    ] = None,
    cells: Annotated[
        str | None, typer.Option(metavar="URL", help="The URL of the jobs' cells, if not next to their state.")
    ] = None,
    finish: Annotated[bool, typer.Option("--finish", help="Only finish an interrupted move.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move keys of a stopped job, with the state of all their operators, to another stopped job.

    Each key is in exactly one of the two jobs, even after a crash. The next start of either job finishes an interrupted
    move; between two state URLs, use --finish. TARGET must have run once, with the same operators.

    For example:

        tidewheel state move clicks clicks-eu ada bob --state s3://bucket/state

        tidewheel state move clicks clicks-2 --shard 0 --shard 1 --state file:///data --to-state s3://bucket/state

        tidewheel state move clicks clicks-2 --finish --state file:///data --to-state s3://bucket/state
    """
    places = JobPlace(source, state, cells), JobPlace(target, to_state or state, cells)
    if finish:
        if keys or shards:
            raise ConfigError("--finish finishes an interrupted move; leave out keys and --shard")
        finish_moves(*places)
        echo(shown({"finished": True}) if as_json else f"no move from {source} to {target} is pending")
        return
    if keys:
        stored = StoredJob(source, state=state)
        transfer = move_keys(*places, keys=[_resolved_key(stored, text) for text in keys])
    else:
        transfer = move_keys(*places, shards=shards)
    summary = {"transfer": transfer.id, "keys": transfer.keys, "from": source, "to": target}
    echo(shown(summary) if as_json else f"moved {transfer.keys} keys from {source} to {target}")


def _resolved_key(stored: StoredJob, text: str) -> Any:
    """Return the key that a text stands for: a number can be a number or text, and the one that has state is used."""
    operators = stored.show().operators
    for candidate in key_candidates(text):
        if any(stored.get(operator, candidate).found for operator in operators):
            return candidate
    raise StateError(f"the key {text} has no state in job {stored.name!r}; nothing is moved")
