"""`tidewheel switch`: replace the program of a running job by another one."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel._cli.differences import show_differences
from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Verbose
from tidewheel._cli.log_options import LogFormat, LogLevel, Traces, configure_logs
from tidewheel._cli.program import load_job
from tidewheel._cli.progress import progress_for
from tidewheel._cli.run_options import Remote, with_remote, with_run_options
from tidewheel._cli.stored import JobName
from tidewheel._spark.options import RunOptions
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._replay.switch_run import Switching


@with_run_options(environment={"state": "TIDEWHEEL_STATE"})
def switch(
    job: JobName,
    to: Annotated[str, typer.Option("--to", metavar="NEW", help="The new program.")],
    options: RunOptions,
    last: Annotated[int, typer.Option("--last", min=1, help="Begin this many batches before the newest commit.")] = 1,
    expect_same: Annotated[
        bool, typer.Option("--expect-same", help="Refuse to take over if anything differs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Accept all differences without asking.")] = False,
    remote: Remote = None,
    traces: Traces = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per batch.")] = False,
    verbose: Verbose = False,
) -> None:
    """Replace the program of a running job by another one, without a gap and without a duplicate.

    The new program starts next to the running one and follows it on a fork of its state, publishing nothing. When it has
    caught up, the differences of state and of numbers of rows are shown. If you accept them, the new program takes the
    job over between two commits, publishes from the next one on, and keeps running like `tidewheel run`. The other run
    ends. Until then the job is unchanged, so the command can be stopped. To go back, switch to the old program.

    For example:

        tidewheel switch clicks --to new.py --expect-same

        tidewheel switch clicks --to new.py --last 20 --yes --state s3://bucket/state
    """
    configure_logs(log_level, log_format, traces)
    options = with_remote(options, remote)
    new = load_job(to, options.state)
    if new.name != job:
        raise ConfigError(f"{to} is the program of job {new.name!r}, not of {job!r}: give both the same name")

    def accept(found: Switching) -> bool:
        from tidewheel._program.stored_job import StoredJob

        show_differences(found.state, StoredJob(job, state=new.state).show().operators)
        for sink, (was, now) in found.counts.items():
            echo(f"sink {sink}: {was} rows, and {now} with the new program")
        batches = f"{found.batches} {'batch' if found.batches == 1 else 'batches'}"
        if found.same:
            echo(f"same: the new program gives the same state and numbers of rows over {batches}")
            return True
        if yes or expect_same:
            return not expect_same
        if not sys.stdin.isatty():
            echo("there are differences, and no terminal to confirm them: --yes accepts them", err=True)
            return False
        return typer.confirm(f"take over job {job} with these differences over {batches}?")

    with progress_for(as_json) as progress:
        progress.started(new)
        chosen = replace(options, progress=progress.batch, on_phase=progress.phase, on_readers=progress.readers)
        progress.ended(new.switch(accept, last=last, options=chosen))
