"""`tidewheel state reshard`: change the number of shards of a stopped job."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._cli.echo import echo
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, JobName, State, shown, size
from tidewheel._engine.reshard import reshard as reshard_job


def reshard(
    job: JobName,
    n_shards: Annotated[int, typer.Argument(metavar="N", help="The new number of shards, a power of two.")],
    state: State = DEFAULT_STATE,
    cells: Annotated[
        str | None, typer.Option(metavar="URL", help="The URL of the job's cells, if not next to its state.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite all state of a stopped job in another number of shards, verify it, and switch to it in one commit.

    Then set n_shards=N in the program. Earlier checkpoints stay and can be restored.

    For example:

        tidewheel state reshard clicks 256 --state s3://bucket/state
    """
    resharded = reshard_job(JobPlace(job, state, cells), n_shards)
    if as_json:
        echo(shown({"job": job, **{name: getattr(resharded, name) for name in resharded.__struct_fields__}}))
        return
    entries = sum(tally.entries for tally in resharded.tables.values())
    echo(
        f"{job}: {resharded.before} shards became {resharded.after} with commit {resharded.sequence}; {entries} entries of "
        f"{len(resharded.tables)} tables, {size(resharded.bytes)}, read again and equal. Run it with n_shards={resharded.after}"
    )
