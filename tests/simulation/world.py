"""The world of a history: a store, a network, hosts and processes, and what goes wrong among them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from simulation import primitives
from simulation.scheduler import SECOND, Host, Process, Scheduler, Task, Violation
from simulation.sometimes import sometimes
from simulation.store import Bucket, Client, DirectStore, Network, Rates
from tidewheel.errors import TidewheelError

FAULTS_S = 150
"""For how many simulated seconds things go wrong."""
PATIENCE_S = 1200
"""Within how many simulated seconds after that everything must be done."""


class World(Scheduler):
    """What all histories have. A kind of history adds its processes, its steps and what must be true."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        super().__init__(seed, only)
        primitives.enter(self)
        draw = self.random
        # Some histories are calm, so that much happens in them; some have one kind of fault, some all.
        kinds = draw.choice(
            [(), ("lost",), ("late",), ("unanswered", "repeated"), ("slow",), ("lost", "late", "unanswered", "slow")]
        )
        self.rates = Rates(**{kind: draw.uniform(0.002, 0.04) for kind in kinds})
        self.network = Network(self, self.rates)
        self.bucket = Bucket(self)
        self.client = Client(self.bucket, self.network)
        self.direct = DirectStore(self.bucket, "state")
        self.wrong = draw.choice([25, 25, 25, 300])
        """By how many seconds clocks are wrong. Beyond half a minute, the time of batches may go back."""
        self.hosts = [
            Host(f"host-{n}", draw.randrange(-self.wrong, self.wrong) * SECOND, draw.randrange(10**6) * SECOND)
            for n in range(3)
        ]
        self.processes: list[Process] = []
        self.log: list[str] = []
        self.stopping = False
        """Whether the faults are over: nothing new begins that is not needed."""
        self.on_failure = self._task_failed

    def started(self, pid: int) -> int:
        """Return when a process of the current host began, as a number; 0 if it is not there."""
        here = self.process.host
        found = [each for each in self.processes if each.pid == pid and each.host is here and not each.dead]
        return pid if found or pid == self.outside.pid else 0

    def start(self, name: str, work: Callable[[], Any], host: Host | None = None, after: int = 0) -> Process:
        """Start a process. It ends with its first task, as its other threads are daemons."""
        process = Process(host or self.random.choice(self.hosts), name, 100 + len(self.processes))

        def main() -> None:
            try:
                work()
            finally:
                self.kill(process)

        self.processes.append(process)
        self.spawn(main, process, name, after)
        return process

    def note(self, text: str) -> None:
        """Write a line of the story that a failure shows."""
        self.log.append(f"{self.now / SECOND:9.3f} {self.process.name}: {text}")

    def check(self, true: bool, what: str) -> None:
        """Raise unless something is as it must be."""
        if not true:
            self.note(f"VIOLATION: {what}")
            # Also if the code that made the change takes errors for failures of its store.
            self._raised = Violation(what)
            raise self._raised

    def _task_failed(self, task: Task, error: BaseException) -> None:
        # Threads of the product report their errors; what ends a task here is not expected by anybody.
        self.log.append(f"{self.now / SECOND:9.3f} {task.process.name} {task.name}: ended with {error!r}")
        raise error

    # What goes wrong.

    def trouble(self) -> None:
        """Pause, kill and cut off processes, and move clocks, until the faults end."""
        while self.now < FAULTS_S * SECOND:
            self.pause(self.random.randrange(SECOND, 40 * SECOND))
            if self.stopping:
                return
            living = [each for each in self.processes if not each.dead and each.tasks and each is not self.process]
            act = self.random.choice([self._stop, self._stop, self._kill, self._jump, self._cut, self._fill])
            if living:
                self.strike(act, self.random.choice(living))

    def strike(self, act: Callable[[Process], None], process: Process) -> None:
        """Let something happen to a process, unless a shrunk history leaves it out."""
        if self.strikes():
            act(process)

    def _stop(self, process: Process) -> None:
        long = self.random.choice([3, 12, 40, 120])
        process.paused_until = self.now + self.random.randrange(long * SECOND)
        self.note(f"pause {process.name} until {process.paused_until / SECOND:.3f}")
        sometimes("process paused")

    def _kill(self, process: Process) -> None:
        self.note(f"kill {process.name}")
        sometimes("process killed")
        self.kill(process)

    def _jump(self, process: Process) -> None:
        process.host.wall = self.random.randrange(-self.wrong, self.wrong) * SECOND
        self.note(f"the clock of {process.host.name} is wrong by {process.host.wall // SECOND} s")
        sometimes("clock jumped")

    def _cut(self, process: Process) -> None:
        process.host.unreachable_until = self.now + self.random.randrange(60 * SECOND)
        self.note(f"cut {process.host.name} off until {process.host.unreachable_until / SECOND:.3f}")
        sometimes("host cut off")

    def _fill(self, _: Process) -> None:
        self.bucket.full_until = self.now + self.random.randrange(30 * SECOND)
        self.note(f"the store is full until {self.bucket.full_until / SECOND:.3f}")

    def heal(self) -> None:
        """End all faults."""
        self.rates.stop()
        self.stopping = True
        self.bucket.full_until = 0
        for host in self.hosts:
            host.unreachable_until = 0
        self.note("the faults end")

    def tolerated(self, error: TidewheelError) -> bool:
        """Return whether a failure of a process is one that faults explain."""
        return True

    def end(self) -> None:
        """End all processes, so that nothing of a history is left."""
        for process in self.processes:
            self.kill(process)
        self.run(limit=self.now)
