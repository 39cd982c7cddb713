"""`tidewheel graph`: show a program's operators without running it."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel._cli.failures import Verbose
from tidewheel._cli.program import load_job
from tidewheel._cli.run import Program


def graph(
    program: Program,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flow chart.")] = False,
    verbose: Verbose = False,
) -> None:
    """Check the graph of a program's job and show it, one line per operator. Nothing is run.

    For example:

        tidewheel graph clicks.py

        tidewheel graph clicks.py:hourly --mermaid > graph.mmd
    """
    job = load_job(program)
    job.graph.check()
    typer.echo(job.graph.mermaid() if mermaid else job.graph.text())
