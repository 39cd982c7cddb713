"""`tidewheel ui`: the web page of all jobs at a state URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Verbose
from tidewheel._cli.stored import DEFAULT_STATE, CellsUrl, State

if TYPE_CHECKING:
    from tidewheel._program.job import Job
    from tidewheel._ui.server import PageServer


def ui(
    state: State = DEFAULT_STATE,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="The port; 0 picks a free one; by default 7080, or a free one if 7080 is taken."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = ("127.0.0.1"),
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another host name of the page, such as that of a proxy."),
    ] = None,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes", help="Allow users of the page to stop, rescale and restore jobs, and to set cells."
        ),
    ] = False,
    cells: CellsUrl = None,
    inbox: Annotated[
        str | None, typer.Option(metavar="URL", help="The inbox of the fleets, to show their lag.")
    ] = None,
    records: Annotated[
        list[str] | None,
        typer.Option(
            "--records",
            metavar="PROGRAM",
            help="The program of a job, to show the records of a key; can be repeated.",
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Serve a web page of all jobs at a state URL, running or not, until Ctrl-C.

    The page does not disturb runs. It listens only on this machine and makes no requests to other hosts. The printed
    address contains a token, without which nobody can read state.

    For example:

        tidewheel ui --state s3://bucket/state

        tidewheel ui --state file:///data/state --port 8080 --allow-changes

        tidewheel ui --state file:///data/state --records clicks.py
    """
    from tidewheel._cli.program import load_job

    programs = {job.name: job for job in map(load_job, records or ())}
    page = page_server(state, host, port, tuple(allow_host or ()), allow_changes, cells, inbox, programs)
    with page:
        echo(f"the page is at {page.url} (Ctrl-C ends it)")
        page.wait()


@contextmanager
def page_of(job: Job) -> Iterator[None]:
    """Serve the page of a job's state URL during a block, and print its address."""
    with page_server(job.state, cells=job.cells_at, programs={job.name: job}) as page:
        echo(f"the page is at {page.url}", err=True)
        yield


def page_server(
    state: str,
    host: str = "127.0.0.1",
    port: int | None = None,
    names: tuple[str, ...] = (),
    changes: bool = False,
    cells: str | None = None,
    inbox: str | None = None,
    programs: Mapping[str, Job] | None = None,
) -> PageServer:
    """Return the server of a page."""
    from tidewheel._core.http_guard import guard_for
    from tidewheel._ui.server import PageServer
    from tidewheel._ui.site import Site

    site = Site(state, cells=cells, inbox=inbox, programs=programs)
    return PageServer(site, guard_for(host, names, changes=changes), host, port)
