"""`tidewheel ui`: the web page of all jobs at a state URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel._cli.failures import Verbose
from tidewheel._cli.stored import CellsUrl, State
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._ui.server import PageServer


def ui(
    state: State,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 7080,
    host: Annotated[str, typer.Option(help="The address to listen at. Others than this machine need the token.")] = (
        "127.0.0.1"
    ),
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name under which the page is asked for, as behind a proxy."),
    ] = None,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Let who has the token stop, rescale and restore jobs, and set cells."),
    ] = False,
    cells: CellsUrl = None,
    inbox: Annotated[
        str | None, typer.Option(metavar="URL", help="The inbox of the fleets, to show how far they are behind.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Show all jobs at a state URL, alive or not, as a web page, until Ctrl-C.

    Runs are not disturbed. The page listens on this machine only, and asks no other host for anything.

    For example:

        tidewheel ui --state s3://bucket/state

        tidewheel ui --state file:///data/state --port 8080 --allow-changes
    """
    page = page_server(state, host, port, tuple(allow_host or ()), allow_changes, cells, inbox)
    with page:
        typer.echo(f"the page is at {page.url} (Ctrl-C ends it)")
        page.wait()


def page_server(
    state: str,
    host: str,
    port: int,
    names: tuple[str, ...] = (),
    changes: bool = False,
    cells: str | None = None,
    inbox: str | None = None,
) -> PageServer:
    """Return the server of a page; a `ConfigError` if what it needs is not installed."""
    try:
        from tidewheel._ui.guard import guard_for
        from tidewheel._ui.server import PageServer
    except ImportError as error:
        raise ConfigError(f"the page needs {error.name}: pip install 'tidewheel[ui]'") from error
    from tidewheel._ui.site import Site

    return PageServer(Site(state, cells=cells, inbox=inbox), guard_for(host, names, changes=changes), host, port)
