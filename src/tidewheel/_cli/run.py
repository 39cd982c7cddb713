"""`tidewheel run`: run a program's job."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tidewheel._cli.failures import Verbose
from tidewheel._cli.log_options import LogFormat, LogLevel, Traces, configure_logs
from tidewheel._cli.program import Program, load_job
from tidewheel._cli.progress import progress_for
from tidewheel._cli.run_options import Remote, with_remote, with_run_options
from tidewheel._core.lost_terminal import survive_loss
from tidewheel._spark.early_start import start_early
from tidewheel._spark.options import RunOptions
from tidewheel._subjects import added
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._program.job import Job


@with_run_options(environment={"state": "TIDEWHEEL_STATE"})
def run(
    program: Program,
    options: RunOptions,
    remote: Remote = None,
    traces: Traces = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    ui: Annotated[
        bool, typer.Option("--ui", help="Also serve the page of the job's state URL, like `tidewheel ui`.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per batch.")] = False,
    verbose: Verbose = False,
) -> None:
    """Run the job of a program until it ends.

    Ctrl-C, SIGTERM or SIGHUP finishes the batch, or ends the start, and stops; a second Ctrl-C aborts. Both are safe:
    the next run continues from the last commit.

    The program is a Python file that creates a Job. If it runs the job itself, it must do so under `if __name__ ==
    "__main__":`.

    Options can also come from the file tidewheel.toml: `--profile production` uses its table `[profiles.production]`.

    For example:

        tidewheel run clicks.py

        tidewheel run clicks.py:hourly --state s3://bucket/state --every "5 seconds" --restarts 10

        tidewheel run clicks.py --until caught-up --parallelism 4 --json

    Exit status: 0 the run ended or was stopped, 1 an error, 2 another run holds the job, 130 aborted.
    """
    configure_logs(log_level, log_format, traces)
    options = with_remote(options, remote)
    begun = False
    try:
        start_early(options.master, options.conf)
        job = load_job(program, options.state)
        with _page_of(job) if ui else nullcontext(), progress_for(as_json) as progress:

            def on_phase(phase: str | None) -> None:
                nonlocal begun
                begun = True
                progress.phase(phase)

            progress.started(job)
            chosen = replace(options, progress=progress.batch, on_phase=on_phase, on_readers=progress.readers)
            progress.ended(job.run(options=chosen))
    except KeyboardInterrupt:
        # While the run is active, it handles the signal. After the run, while it releases its resources, the signal
        # aborts.
        if begun:
            raise
        _leave()


def _leave() -> NoReturn:
    """End the process before the run has started."""
    with survive_loss(sys.stderr):
        print("stopped before the run began", file=sys.stderr, flush=True)
    # Use os._exit: a normal exit would interrupt the thread that starts Spark, which then prints a long error. Spark's
    # JVM ends when this process is gone.
    os._exit(0)


def _page_of(job: Job) -> AbstractContextManager[None]:
    if "ui" not in added("commands"):
        raise ConfigError("--ui needs the page, which is not part of this installation")
    from tidewheel._ui.cli.ui import page_of

    return page_of(job)
