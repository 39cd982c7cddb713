"""`tidewheel run`: run a program's job."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import Annotated, Any, NoReturn

import typer

from tidewheel._cli.duration import duration
from tidewheel._cli.failures import Verbose
from tidewheel._cli.log_options import LogFormat, LogLevel, Traces, start_telling
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
        str | None, typer.Option(metavar="URL", help="Where the state lives: file:///data/state, s3://bucket/prefix, …")
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option(min=1, help="Tasks per batch, up to the job's shards; may differ at every start.")
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            callback=checked_trigger,
            help="'available-now' (or 'once'): read all there is and end; '5 seconds': run on.",
        ),
    ] = None,
    bounded: Annotated[
        bool, typer.Option("--bounded", help="Read all there is, close every window, and end the job for good.")
    ] = False,
    master: Master = None,
    remote: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Run on a server of Spark Connect, such as sc://host:15002, instead of --master."
        ),
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="How many failures in a row to survive by starting again from the last commit.")
    ] = 0,
    backoff: Annotated[
        str, typer.Option(callback=duration, metavar="TIME", help="The wait before the first restart; it doubles.")
    ] = "1 s",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence whoever runs the job now: it stops at its next commit.")
    ] = False,
    allow_dropped_state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPERATOR",
            help="Remove the state of this operator, which the program lacks; may be given several times.",
        ),
    ] = None,
    allow_dropped_source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="Forget the offsets of this source, which the program lacks; may be given several times.",
        ),
    ] = None,
    drop_unpublished: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SINK",
            help="Let go of the output of this sink that a crash left unpublished, or leave in place what a restore made void; "
            "may be given several times.",
        ),
    ] = None,
    local: Local = None,
    shared_state: Annotated[
        bool, typer.Option("--shared-state", help="The state's folder is on a file system that all hosts share.")
    ] = False,
    conf: Conf = None,
    tick: Annotated[
        str | None,
        typer.Option(
            callback=duration,
            metavar="TIME",
            help="How often a job that waits for time runs a batch while its sources are quiet, by default '1 s'.",
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
        bool, typer.Option("--ui", help="Serve the page of the job's state URL meanwhile, as `tidewheel ui` does.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per batch, for machines.")] = False,
    verbose: Verbose = False,
) -> None:
    """Run the job of a program until it ends.

    Ctrl-C, SIGTERM or SIGHUP finishes the batch, or ends the start, and stops; a second Ctrl-C aborts. Both are safe: the next
    run goes on from the last commit.

    The program is a Python file that makes a Job; if it runs the job itself, it does so under
    `if __name__ == "__main__":`.

    For example:

        tidewheel run clicks.py

        tidewheel run clicks.py:hourly --state s3://bucket/state --trigger "5 seconds" --restarts 10

        tidewheel run clicks.py --trigger available-now --parallelism 4 --json

    Exit status: 0 the run ended or was stopped, 1 an error, 2 another run holds the job, 130 aborted.
    """
    start_telling(log_level, log_format, traces)
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
        # A run takes the signal itself while it goes on; what comes after it, as it lets go of what it held, aborts.
        if begun:
            raise
        _leave()


def _leave() -> NoReturn:
    """End the process before the run has begun."""
    with survive_loss(sys.stderr):
        print("stopped before the run began", file=sys.stderr, flush=True)
    # Not by the interpreter's own end: it would cut off the thread that starts Spark, which then says so at length. Spark's JVM
    # ends when this process is gone.
    os._exit(0)
