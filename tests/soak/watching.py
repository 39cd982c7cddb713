"""Other processes than the jobs: readers that check what they see, and commands that change what is stored."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tidewheel import StoredJob

Totals = Mapping[str, Sequence[int]]


class Looking(threading.Thread):
    """Does one of several things again and again; `wrong` has what must not be, `away` counts what could not be done.

    A thing raises AssertionError for what must not be. Any other error means that a server or a disk is away.
    """

    def __init__(self, name: str, things: Sequence[Callable[[], str]], pause: float, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self._things, self._pause, self._draw = things, pause, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.away: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(self._pause):
            thing = self._draw.choice(self._things)
            try:
                self.done[thing()] += 1
            except AssertionError as error:
                self.wrong.append(f"{time.strftime('%H:%M:%S')} {error}")
                print(f"WRONG {self.wrong[-1]}", flush=True)
            except Exception as error:
                self.away[f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"] += 1


def check_state(job: StoredJob, totals: Totals, at: str | int | None = None) -> int:
    """Compare the totals in a checkpoint with those of the producer; return how many payments it counts."""
    counted = 0
    for user, (n, total) in job.scan("number", at=at):
        counted += n
        # The newest ones may be stored, and not acknowledged yet.
        if 0 < n <= len(totals[user]):
            assert total == totals[user][n - 1], f"{user} has {total} after {n} payments, not {totals[user][n - 1]}"
    return counted


class Table:
    """A reader of the table: of each user numbers without a gap, which never become fewer."""

    def __init__(self, query: Callable[[str], list[tuple[object, ...]]]) -> None:
        self._query = query
        self._highest: dict[str, int] = {}

    def __call__(self) -> str:
        found = self._query('SELECT "user", count(*), count(DISTINCT n), max(n) FROM numbered GROUP BY "user"')
        for user, rows, different, highest in found:
            assert rows == different == highest, f"{user}: {rows} rows, {different} numbers up to {highest}"
            assert highest >= self._highest.get(user, 0), f"{user}: rows of the table are gone"  # type: ignore[arg-type, operator]
            self._highest[user] = highest  # type: ignore[assignment, index]
        return "read the table of PostgreSQL"


def command(*arguments: str) -> str:
    """Run a tidewheel command; raise an error if it fails."""
    ran = subprocess.run([sys.executable, "-m", "tidewheel", *arguments], capture_output=True, text=True, timeout=240)
    if ran.returncode:
        lines = (ran.stderr.strip() or ran.stdout.strip() or "no text").splitlines()
        raise OSError(f"{' '.join(arguments[:2])}: {lines[-1]}")
    return ran.stdout


class Commands:
    """The commands that other processes run on a job while it runs."""

    def __init__(self, job: str, state: str, totals: Totals, seed: int, cells: str | None = None) -> None:
        self._job, self._totals, self._draw = job, totals, random.Random(seed)
        self._state = ("--state", state)
        self._url = state
        self._cells = ("--cells", cells) if cells else ()
        self._forks = 0
        self._threshold = 0

    def collect(self) -> str:
        command("checkpoints", "gc", self._job, *self._state, "--grace", "20 s")
        return f"gc of {self._job}"

    def rescale(self) -> str:
        command("rescale", self._job, str(self._draw.choice([1, 2, 3, 4])), *self._state, *self._cells)
        return f"rescale {self._job}"

    def set_cell(self) -> str:
        # Never a value twice, also where it is not known whether the last one was set.
        self._threshold += 1
        value = str(self._threshold)
        command("cells", "set", "threshold", value, "--job", self._job, *self._state, *self._cells)
        return f"cell of {self._job} set"

    def fork(self) -> str:
        """Fork the job, check the fork, and drop it."""
        self._drop_forks()
        self._forks += 1
        name = f"{self._job}-fork-{self._forks}"
        command("checkpoints", "savepoint", self._job, name, *self._state)
        try:
            command("checkpoints", "fork", self._job, name, name, *self._state)
            try:
                fork = StoredJob(name, state=self._url)
                problems = fork.verify().problems
                assert not problems, f"the fork {name}: {problems[:3]}"
                check_state(fork, self._totals)
            finally:
                command("reset", name, "--yes", *self._state)
        finally:
            command("checkpoints", "savepoint", self._job, name, "--drop", *self._state)
        return f"fork of {self._job}"

    def _drop_forks(self) -> None:
        """Drop what earlier forks left because a server or the disk was away: it would keep files until the end."""
        stored = StoredJob(self._job, state=self._url)
        for savepoint in stored.savepoints():
            if savepoint.name.startswith(f"{self._job}-fork-"):
                with contextlib.suppress(OSError):  # Most often the fork was dropped, or never made.
                    command("reset", savepoint.name, "--yes", *self._state)
                stored.drop_savepoint(savepoint.name)

    def verify(self) -> str:
        problems = StoredJob(self._job, state=self._url).verify().problems
        assert not problems, f"{self._job}: {problems[:3]}"
        return f"verify {self._job}"

    def read(self) -> str:
        check_state(StoredJob(self._job, state=self._url), self._totals)
        return f"read the state of {self._job}"
