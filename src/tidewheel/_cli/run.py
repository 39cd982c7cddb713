"""`tidewheel run`: run a program's job."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import Annotated, Any, NoReturn

import typer

from tidewheel._cli.duration import duration
from tidewheel._cli.failures import Verbose
from tidewheel._cli.log_options import LogFormat, LogLevel, Traces, configure_logs
from tidewheel._cli.program import Program, load_job
from tidewheel._cli.progress import progress_for
from tidewheel._cli.run_options import (
    Conf,
    History,
    Local,
    Master,
    Metrics,
    ReadyWithin,
    checked_trigger,
    kept_history,
    settings,
)
from tidewheel._cli.ui import page_of
from tidewheel._core.lost_terminal import survive_loss
from tidewheel._spark.early_start import start_early
from tidewheel._spark.masters import is_remote
from tidewheel.errors import ConfigError


def run(
    program: Program,
    state: Annotated[
        str | None, typer.Option(metavar="URL", help="The state URL: file:///data/state, s3://bucket/prefix, …")
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option(min=1, help="Tasks per batch, up to the job's shards; can differ between runs.")
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            callback=checked_trigger,
            help="'available-now' (or 'once'): read all available data and end; '5 seconds': run until stopped.",
        ),
    ] = None,
    bounded: Annotated[
        bool,
        typer.Option("--bounded", help="Read all available data, close every window, and end the job permanently."),
    ] = False,
    master: Master = None,
    remote: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Run on a Spark Connect server, such as sc://host:15002, instead of --master."
        ),
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="How many consecutive failures to survive by restarting from the last commit.")
    ] = 0,
    backoff: Annotated[
        str,
        typer.Option(callback=duration, metavar="TIME", help="The wait before the first restart; doubles each time."),
    ] = "1 s",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence the current run: it stops at its next commit.")
    ] = False,
    allow_dropped_state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPERATOR",
            help="Delete the state of this operator, which the program no longer has; can be repeated.",
        ),
    ] = None,
    allow_dropped_source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="Drop the offsets of this source, which the program no longer has; can be repeated.",
        ),
    ] = None,
    drop_unpublished: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SINK",
            help="Drop unpublished output of this sink after a crash, or keep its output in place after a restore; "
            "can be repeated.",
        ),
    ] = None,
    local: Local = None,
    shared_state: Annotated[
        bool, typer.Option("--shared-state", help="The state folder is on a file system that all hosts share.")
    ] = False,
    conf: Conf = None,
    tick: Annotated[
        str | None,
        typer.Option(
            callback=duration,
            metavar="TIME",
            help="The interval of batches while sources are quiet and the job waits for time; by default '1 s'.",
        ),
    ] = None,
    serve: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="Answer look-ups on 127.0.0.1: GET /OPERATOR/KEY."),
    ] = None,
    metrics: Metrics = None,
    ready_within: ReadyWithin = "5 min",
    traces: Traces = False,
    history: History = "7 days",
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

    For example:

        tidewheel run clicks.py

        tidewheel run clicks.py:hourly --state s3://bucket/state --trigger "5 seconds" --restarts 10

        tidewheel run clicks.py --trigger available-now --parallelism 4 --json

    Exit status: 0 the run ended or was stopped, 1 an error, 2 another run holds the job, 130 aborted.
    """
    configure_logs(log_level, log_format, traces)
    options: dict[str, Any] = {
        "bounded": bounded,
        "restarts": restarts,
        "backoff": backoff,
        "take_over": take_over,
        "allow_dropped_state": allow_dropped_state or (),
        "allow_dropped_source": allow_dropped_source or (),
        "drop_unpublished": drop_unpublished or (),
        "shared_state": shared_state,
        "conf": settings(conf),
        "history": kept_history(history),
        "ready_within": ready_within,
    }
    choices = {
        "parallelism": parallelism,
        "trigger": trigger,
        "master": master,
        "local": local,
        "tick": tick,
        "serve": serve,
        "metrics": metrics,
    }
    options |= {name: value for name, value in choices.items() if value is not None}
    if remote is not None:
        if not is_remote(remote) or master is not None:
            raise ConfigError(f"--remote is a URL such as sc://host:15002, given without --master; it is {remote!r}")
        options["master"] = master = remote
    begun = False
    try:
        start_early(master, options["conf"])
        job = load_job(program)
        if state is not None:
            job.state = state
        with page_of(job) if ui else nullcontext(), progress_for(as_json) as progress:

            def on_phase(phase: str | None) -> None:
                nonlocal begun
                begun = True
                progress.phase(phase)

            progress.started(job)
            progress.ended(job.run(**options, progress=progress.batch, on_phase=on_phase, on_readers=progress.readers))
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
