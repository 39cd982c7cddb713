"""The author of a change of a cell: information for people, not a proof. Use tickets for proof."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from pathlib import Path

import msgspec

_LONGEST = 120


class Author(msgspec.Struct, frozen=True, array_like=True):
    """The author and time of a change."""

    user: str
    host: str
    program: str
    """The command, the script, or the argument of `open(program=…)`."""
    at: float
    """Seconds since 1970 by the author's clock."""

    def __str__(self) -> str:
        return f"{self.user} on {self.host}, by {self.program}"


class Signature:
    """The author data that a connection adds to its changes."""

    __slots__ = ("_host", "_program", "_user")

    def __init__(self, program: str | None = None) -> None:
        """Use this program name; None uses the script's name. Arguments are never recorded, because they may contain secrets."""
        self._user, self._host = _short(_user()), _short(socket.gethostname())
        self._program = _short(_script() if program is None else program)

    def now(self) -> Author:
        """Return the author of a change made now."""
        return Author(self._user, self._host, self._program, round(time.time(), 3))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # The user id has no name, as in many containers.
        return str(os.getuid())


def _script() -> str:
    path = Path(sys.argv[0] if sys.argv else "")
    name = path.parent.name if path.name == "__main__.py" else path.name
    return "python" if name in ("", "-c", "-m") else name


def _short(text: str) -> str:
    # A script or user name may contain bytes that are not text, which a record cannot hold.
    return text.encode(errors="replace").decode()[:_LONGEST]
