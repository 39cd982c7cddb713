"""Cells in an object store: processes on several hosts write, exchange, count, follow, and hold leases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any

from simulation.scheduler import SECOND, Host, Task
from simulation.sometimes import sometimes
from simulation.world import World
from tidewheel._cells import open_cells
from tidewheel._cells.cell import CellWriter
from tidewheel._cells.errors import CellError, Offline
from tidewheel._cells.lease import Lease

PLACE = "s3://sim/cells?poll_s=5"
FAULTS_S = 60
TTL_S = 5


class CellWorld(World):
    """Some cells, and what was asked of them and answered."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        super().__init__(seed, only)
        self.versions: dict[tuple[str, int], Any] = {}
        """What each version of a cell holds, as somebody has seen it."""
        self.newest: dict[str, int] = {}
        """The newest version of each cell that was acknowledged."""
        self.counted, self.doubtful = 0, 0
        self.failed_values: set[str] = set()
        """Values whose writer was told that they were certainly not written."""
        self.holders: dict[Lease, Task] = {}
        self.tokens: list[int] = []

    def play(self) -> None:
        """Play the whole history."""
        try:
            for number in range(3):
                acts = [self._writer, self._counter, self._leader]
                self.start(f"user-{number}", lambda acts=acts: self._user(acts), self.hosts[number])
            self.spawn(self._trouble, self.outside, "trouble")
            self.run(limit=FAULTS_S * SECOND)
            self.heal()
            self.run(limit=self.now + 130 * SECOND)
            done: list[bool] = []
            self.start("last", lambda: self._finish(done), Host("fresh"))
            self.run(lambda: bool(done), self.now + 300 * SECOND)
            self.check(bool(done), "cells cannot be read and written after the last fault")
        finally:
            self.end()

    def _trouble(self) -> None:
        while self.now < FAULTS_S * SECOND:
            self.pause(self.random.randrange(SECOND, 12 * SECOND))
            if self.stopping:
                return
            living = [each for each in self.processes if not each.dead and each.tasks]
            act = self.random.choice([self._stop, self._stop, self._kill, self._jump, self._cut, self._fill])
            if living:
                self.strike(act, self.random.choice(living))

    def _user(self, acts: list[Callable[[Any], None]]) -> None:
        while not self.stopping:
            try:
                with open_cells(PLACE, timeout="5 s") as connection:
                    for _ in range(self.random.randrange(1, 6)):
                        self.random.choice(acts)(connection)
            except CellError as error:
                self.note(f"{type(error).__name__}: {error}")
            self.pause(self.random.randrange(SECOND))

    # What users do.

    def _writer(self, connection: Any) -> None:
        cell = connection.writer("text", str)
        for _ in range(self.random.randrange(1, 8)):
            begun = self.newest.get("text", 0)
            snapshot = cell.refresh()
            self._seen("text", snapshot.version, snapshot.value)
            self.check(
                snapshot.version >= begun, f"a read returned version {snapshot.version} after {begun} was written"
            )
            value = f"{self.process.name} {self.steps}"
            self._attempt(lambda cell=cell, value=value, at=snapshot.version: self._exchange(cell, at, value), value)
            self.pause(self.random.randrange(SECOND))

    def _exchange(self, cell: CellWriter[str], version: int, value: str) -> None:
        if self.random.random() < 0.3:
            written = cell.write(value)
        else:
            done = cell.compare_exchange_at(version, value)
            sometimes("exchange lost its race", not done.applied)
            if not done.applied:
                self._seen("text", done.version, done.seen)
                self.failed_values.add(value)
                return
            written = done.version
        self._seen("text", written, value)
        self._acknowledged("text", written)

    def _attempt(self, work: Callable[[], None], value: str) -> None:
        try:
            work()
        except Offline as error:
            sometimes("write of unknown outcome", error.maybe)
            if not error.maybe:
                self.failed_values.add(value)
            raise

    def _counter(self, connection: Any) -> None:
        cell = connection.writer("count", int)
        for _ in range(self.random.randrange(1, 6)):
            try:
                done = cell.update(lambda count: (count or 0) + 1)
            except Offline as error:
                self.doubtful += error.maybe
                raise
            except BaseException:
                self.doubtful += 1
                raise
            self.counted += 1
            self._seen("count", done.version, done.value)
            self._acknowledged("count", done.version)

    def _leader(self, connection: Any) -> None:
        lease = Lease(connection, "boss", holder=self.process.name, ttl=f"{TTL_S} s")
        with contextlib.closing(lease), contextlib.suppress(TimeoutError):
            token = lease.acquire(f"{self.random.randrange(1, 20)} s")
            self.check(token not in self.tokens, f"the token {token} was given twice")
            sometimes("lease passed on", bool(self.tokens) and token > max(self.tokens))
            self.tokens.append(token)
            self.holders[lease] = self._task()
            lease.keep()
            for _ in range(self.random.randrange(1, 10)):
                held = [who.process.name for each, who in self.holders.items() if self._holds(each)]
                self.check(len(held) < 2, f"{held} hold one lease at once")
                self.pause(self.random.randrange(2 * SECOND))
                sometimes("holder found that its lease had lapsed", not lease.held)
        self.holders.pop(lease, None)

    def _holds(self, lease: Lease) -> bool:
        """Return whether a holder believes to hold: by its own clock, which runs on while its process is paused."""
        here, self.current = self.current, self.holders[lease]
        try:
            return lease.held
        finally:
            self.current = here

    # What must be true.

    def _seen(self, name: str, version: int, value: Any) -> None:
        known = self.versions.setdefault((name, version), value)
        self.check(known == value, f"version {version} of {name} is {value!r}, and was {known!r}")
        self.check(value not in self.failed_values, f"{value!r} was written, and its writer was told that it was not")

    def _acknowledged(self, name: str, version: int) -> None:
        self.newest[name] = max(self.newest.get(name, 0), version)

    def _finish(self, done: list[bool]) -> None:
        with open_cells(PLACE) as connection:
            text, count = connection.writer("text", str).refresh(), connection.writer("count", int).refresh()
            self._seen("text", text.version, text.value)
            for name, found in (("text", text), ("count", count)):
                self.check(found.version >= self.newest.get(name, 0), f"{name} is at {found.version}: a write was lost")
            total = count.value or 0
            self.check(
                self.counted <= total <= self.counted + self.doubtful,
                f"the counter is {total}, after {self.counted} increments and {self.doubtful} of unknown outcome",
            )
            with contextlib.closing(Lease(connection, "boss", holder="last", ttl=f"{TTL_S} s")) as lease:
                self.check(lease.acquire("120 s") > max(self.tokens, default=0), "a later token is smaller")
        done.append(True)
