"""`tidewheel standby`: a second driver that takes over when the first one dies."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from tidewheel._cli.failures import Verbose
from tidewheel._cli.log_options import LogFormat, LogLevel, Traces, configure_logs
from tidewheel._cli.program import Program, load_job
from tidewheel._cli.progress import progress_for
from tidewheel._cli.run_options import Remote, with_remote, with_run_options
from tidewheel._spark.early_start import start_early
from tidewheel._spark.options import OPTIONS, RunOptions


@with_run_options([name for name in OPTIONS if name != "take_over"], environment={"state": "TIDEWHEEL_STATE"})
def standby(
    program: Program,
    options: RunOptions,
    remote: Remote = None,
    traces: Traces = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per batch.")] = False,
    verbose: Verbose = False,
) -> None:
    """Wait, ready to work, until the run that has the job dies; then take the job over and run it.

    While it waits, Spark runs, the program is loaded, and local copies of the state follow the commits. It takes over when
    the other run has ended, or has not renewed its lease for the whole duration: give the other run `--lease "5 s"` to
    take over within 10 seconds. On the same machine, a dead process is noticed at once. A run that was only paused is
    fenced: it commits nothing more. If no run has the job, the standby takes it at once.

    `tidewheel stop` ends the run and the standby. Ctrl-C or SIGTERM ends one process: if it has the job, the standby
    takes over.

    For example:

        tidewheel run clicks.py --state s3://bucket/state --lease "5 s"

        tidewheel standby clicks.py --state s3://bucket/state --lease "5 s"

    Exit status: 0 the run ended or was stopped, 1 an error, 130 aborted.
    """
    configure_logs(log_level, log_format, traces)
    options = with_remote(options, remote)
    start_early(options.master, options.conf)
    job = load_job(program, options.state)
    with progress_for(as_json) as progress:
        progress.started(job)
        chosen = replace(options, progress=progress.batch, on_phase=progress.phase, on_readers=progress.readers)
        progress.ended(job.standby(options=chosen))
