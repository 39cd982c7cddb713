"""The `tidewheel` command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tidewheel import __version__

if TYPE_CHECKING:
    from tidewheel._cli.commands import app as app


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:
        # Scripts call this often, and it needs none of the commands' imports.
        print(f"tidewheel {__version__}")
        return
    try:
        _app()()
    except KeyboardInterrupt:
        # Ctrl-C during the imports. Later, the commands handle it themselves.
        print("aborted", file=sys.stderr)
        sys.exit(130)


def _app() -> Any:
    from tidewheel._cli.commands import app

    return app


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "app":
            return _app()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
