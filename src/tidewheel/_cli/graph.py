"""`tidewheel graph`: show a program's steps without running it."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Verbose
from tidewheel._cli.program import Program, load_job
from tidewheel._cli.status import duration
from tidewheel._engine.job_status import table_versions
from tidewheel._engine.task_layout import batch_rule
from tidewheel._operators.order_checks import order_warnings
from tidewheel._operators.readers import readers
from tidewheel._operators.stateless.lookup import Lookup
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._operators.time_checks import clock_warnings, missing_clock
from tidewheel._program.job import Job
from tidewheel._storage import open_store
from tidewheel.errors import TidewheelError


def graph(
    program: Program,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flow chart.")] = False,
    verbose: Verbose = False,
) -> None:
    """Check the graph of a program's job and show one line per step, without running it.

    The line of a source says who reads it: the tasks themselves (arrow), or Spark, with the reason. The last line says
    where batches run, and whether messages are shuffled. Probable mistakes are reported first: a missing folder, a
    declared column that the records of a JSON file lack, windows that nothing would close, a step that depends on an
    order which its source does not promise.

    For example:

        tidewheel graph clicks.py

        tidewheel graph clicks.py:hourly --mermaid > graph.mmd
    """
    job = load_job(program)
    for node in job.plan().nodes:
        if isinstance(node.operator, SourceOperator):
            for warning in node.operator.check_source(node.name, runs=False):
                echo(f"Warning: {warning}", err=True)
    no_clock = missing_clock(job.graph)
    for warning in (*order_warnings(job.graph), *clock_warnings(job.graph), *([no_clock] if no_clock else ())):
        echo(f"Warning: {warning}", err=True)
    if mermaid:
        echo(job.graph.mermaid())
    else:
        notes = {name: f"reader: {who}{_alignment(job, name)}" for name, who in readers(job.graph).items()}
        echo(job.graph.text(notes | _tables(job)))
        echo(f"batches: {batch_rule(job.plan())}")


def _alignment(job: Job, source: str) -> str:
    """Return how far a source may be ahead of the others in event time."""
    if job.align is None:
        return ""
    clocked = source in job.plan().clocked()
    return f", at most {duration(job.align / 1e9)} ahead of the others" if clocked else ", without a clock to align"


def _tables(job: Job) -> dict[str, str]:
    """Return the table of each lookup, with its version and rows if the job has loaded it."""
    lookups = {node.name: node.operator.table for node in job.graph.nodes if isinstance(node.operator, Lookup)}
    newest = None
    if lookups:
        with contextlib.suppress(TidewheelError):  # The state URL may be out of reach, and the graph is not.
            newest = StreamCheckpoints(open_store(job.state), job.name).latest()
    known = {} if newest is None else table_versions(newest)
    notes = {}
    for step, table in lookups.items():
        found = known.get(table.name)
        version = f"version {found['version']}, {found['rows']:,} rows" if found else "not loaded yet"
        notes[step] = f"table {table.name}: {table.source.describe()}, by {', '.join(table.key)}, {version}"
    return notes
