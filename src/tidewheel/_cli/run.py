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
from tidewheel._cli.program import load_job
from tidewheel._cli.progress import progress_for
from tidewheel._cli.ui import page_of
from tidewheel._core.lost_terminal import survive_loss
from tidewheel._spark.early_start import start_early
from tidewheel._spark.trigger import check_trigger
from tidewheel.errors import ConfigError

Program = Annotated[
    str,
    typer.Argument(metavar="PROGRAM[:JOB]", help="A Python file, and the variable of the job where it has several."),
]


def _trigger(text: str | None) -> str | None:
    try:
        check_trigger(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def _settings(items: list[str] | None) -> dict[str, str]:
    pairs = [item.partition("=") for item in items or ()]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} lacks its value; write NAME=VALUE", param_hint="--conf")
    return {name: value for name, _, value in pairs}


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
            callback=_trigger,
            help="'available-now' (or 'once'): read all there is and end; '5 seconds': run on; 'direct': run on, at once.",
        ),
    ] = None,
    bounded: Annotated[
        bool, typer.Option("--bounded", help="Read all there is, close every window, and end the job for good.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(help="Spark's master: local[4], spark://host:7077, …; by default all cores of this machine."),
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
    local: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where tasks keep their local copies of the state, on every host.")
    ] = None,
    shared_state: Annotated[
        bool, typer.Option("--shared-state", help="The state's folder is on a file system that all hosts share.")
    ] = False,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark's; may be given several times.")
    ] = None,
    tick: Annotated[
        str | None,
        typer.Option(
            callback=duration,
            metavar="TIME",
            help="How often a job that waits for time runs a batch while its sources are quiet, by default '1 s'.",
        ),
    ] = None,
    in_driver: Annotated[
        bool,
        typer.Option(
            "--in-driver", help="Run small batches in this process: quicker, and a crash of one ends the run."
        ),
    ] = False,
    serve: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="Answer look-ups on 127.0.0.1: GET /OPERATOR/KEY."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve /metrics, /health and /ready; on 127.0.0.1 unless told otherwise."
        ),
    ] = None,
    ready_within: Annotated[
        str | None,
        typer.Option(
            callback=duration, metavar="TIME", help="How old the last commit may be for /ready, by default '5 min'."
        ),
    ] = None,
    traces: Traces = False,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long figures and errors stay at the state URL, by default '7 days'; 'none': nothing is noted.",
        ),
    ] = None,
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
    options: dict[str, Any] = {"bounded": bounded, "restarts": restarts, "backoff": backoff}
    options |= {"take_over": take_over, "allow_dropped_state": allow_dropped_state or (), "conf": _settings(conf)}
    options |= {
        "allow_dropped_source": allow_dropped_source or (),
        "shared_state": shared_state,
        "in_driver": in_driver,
        "drop_unpublished": drop_unpublished or (),
    }
    choices = {
        "parallelism": parallelism,
        "trigger": trigger,
        "master": master,
        "local": local,
        "tick": tick,
        "serve": serve,
        "metrics": metrics,
        "ready_within": ready_within,
    }
    options |= {name: value for name, value in choices.items() if value is not None}
    if history is not None:
        options["history"] = None if history == "none" else history
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
