"""Who changed a cell: a note for people. Nothing is decided by it, and it proves nothing; tickets do."""

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
    """Who changed a cell, and when."""

    user: str
    host: str
    program: str
    """The command, the script, or what `open(program=…)` says."""
    at: float
    """Seconds since 1970 by the clock of that host."""

    def __str__(self) -> str:
        return f"{self.user} on {self.host}, by {self.program}"


class Signature:
    """What a connection signs its changes with."""

    __slots__ = ("_host", "_program", "_user")

    def __init__(self, program: str | None = None) -> None:
        """Take the name of the program; None: the script's. Its arguments are never noted: they may hold secrets."""
        self._user, self._host = _short(_user()), _short(socket.gethostname())
        self._program = _short(_script() if program is None else program)

    def now(self) -> Author:
        """Return the author of a change that is made now."""
        return Author(self._user, self._host, self._program, round(time.time(), 3))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # No name belongs to the number, as in many containers.
        return str(os.getuid())


def _script() -> str:
    path = Path(sys.argv[0] if sys.argv else "")
    name = path.parent.name if path.name == "__main__.py" else path.name
    return "python" if name in ("", "-c", "-m") else name


def _short(text: str) -> str:
    # A script's name, or a user's in the environment, may have bytes that are no text, which no record can hold.
    return text.encode(errors="replace").decode()[:_LONGEST]
