"""The runs of a fleet, each with a unique ascending number.

Creating its entry decides a run's number, so no two runs share one. Entries of ended runs whose files are deleted are
removed, but never the newest: so no number is reused.
"""

from __future__ import annotations

import os
import secrets
import socket
import time

import msgspec

from tidewheel._checkpoint.names import folder
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._storage import Store
from tidewheel.errors import CorruptError, NotFound

RUNS = "runs"


class Run(msgspec.Struct, frozen=True):
    """One run of one node."""

    number: int
    node: str
    token: str
    host: str
    pid: int
    began_at: float

    @property
    def name(self) -> str:
        """The run's name in ledgers."""
        return str(self.number)


class Runs:
    """The entries, in the job's folder."""

    def __init__(self, store: Store, job: str) -> None:
        self._store = store.at(f"{folder(job)}/{RUNS}")

    def numbers(self) -> list[int]:
        """Return the numbers of all runs, in ascending order."""
        return sorted(int(entry.path) for entry in self._store.list() if entry.path.isdigit())

    def register(self, node: str) -> Run:
        """Create a run, with a number above all others."""
        while True:
            number = max(self.numbers(), default=0) + 1
            run = Run(number, node, secrets.token_hex(6), socket.gethostname(), os.getpid(), time.time())
            if self._store.create(_name(number), msgspec.json.encode(run)):
                return run

    def get(self, number: int) -> Run | None:
        """Return a run, or None if its entry was removed."""
        try:
            data = self._store.read(_name(number))
        except NotFound:
            return None
        try:
            return msgspec.json.decode(data, type=Run)
        except UNDECODABLE as error:
            raise CorruptError(
                f"run {number} at {self._store.url} does not decode ({error}); is it an entry?"
            ) from None

    def forget(self, number: int) -> None:
        """Remove the entry of an ended run, unless it is the newest."""
        if number < max(self.numbers(), default=0):
            self._store.delete(_name(number))


def _name(number: int) -> str:
    return f"{number:010}"
