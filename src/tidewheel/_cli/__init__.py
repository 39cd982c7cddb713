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
        # Asked by scripts, and often: it needs none of what the commands import.
        print(f"tidewheel {__version__}")
        return
    try:
        _app()()
    except KeyboardInterrupt:
        # While the commands were imported: they say themselves what becomes of them.
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
