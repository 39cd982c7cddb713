"""Common parts of the commands over stored jobs: selection of job and checkpoint, and formats of sizes and times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel._checkpoint.names import DEFAULT_STATE
from tidewheel._checkpoint.tools.text import shown

if TYPE_CHECKING:
    from tidewheel._checkpoint.job_place import JobPlace
    from tidewheel._program.stored_job import StoredJob

__all__ = [
    "DEFAULT_STATE",
    "AsJson",
    "AtOption",
    "CellsUrl",
    "JobName",
    "ProgramState",
    "State",
    "job_place",
    "shown",
    "size",
    "when",
]

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]
State = Annotated[
    str,
    typer.Option(
        "--state",
        "-s",
        metavar="URL",
        envvar="TIDEWHEEL_STATE",
        help="The state URL: file:///data/state, s3://bucket/prefix, …",
    ),
]
JobOrProgram = Annotated[
    str, typer.Argument(metavar="JOB|PROGRAM[:JOB]", help="The job's name, or its program: a Python file.")
]
StateOrProgram = Annotated[
    str | None,
    typer.Option(
        "--state",
        "-s",
        metavar="URL",
        envvar="TIDEWHEEL_STATE",
        help=f"The job's state URL; by default the program's, or {DEFAULT_STATE}.",
    ),
]
ProgramState = Annotated[
    str | None,
    typer.Option(
        "--state",
        "-s",
        metavar="URL",
        envvar="TIDEWHEEL_STATE",
        help="The state URL, if not the one of the program.",
    ),
]
CellsUrl = Annotated[
    str | None, typer.Option("--cells", metavar="URL", help="The URL of the job's cells, if not next to its state.")
]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="SEQ|NAME", help="A checkpoint or savepoint; by default the newest.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def job_place(stored: StoredJob, cells: str | None = None) -> JobPlace:
    """Return the location of a stored job and its cells; `cells` overrides the URL that the program gave."""
    from tidewheel._engine.declaration import place_of_job

    return place_of_job(stored.store, stored.name, cells)


def when(nanoseconds: int) -> str:
    """Return a time as text."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def size(count: int) -> str:
    """Return a number of bytes as text.

    >>> size(10), size(20_000)
    ('10 B', '19.5 KiB')
    """
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError
