"""One scheduler for everything that happens: tasks take turns, and a seed decides their order.

A task is a greenlet, so the code that ships runs as it is: where it would wait for a store, a lock or a clock, the simulated
one lets other tasks run. Time passes only here. A task belongs to a process, which can be paused and killed, and a process
runs on a host, whose clocks may differ from those of others and jump.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

from greenlet import getcurrent, greenlet

SECOND = 10**9
_NEVER = 1 << 62
EPOCH = 1_800_000_000 * SECOND
"""What correct wall clocks show when a history begins, in ns since 1970."""


class Killed(BaseException):
    """Ends the tasks of a killed process. No simulated call of a dead process has an effect: each raises this."""


class Violation(AssertionError):
    """Something that must always be true was not."""


class Host:
    """A machine: its clocks, and the processes that it runs."""

    def __init__(self, name: str, wall: int = 0, boot: int = 0) -> None:
        self.name, self.wall, self.boot = name, wall, boot
        """`wall` is by how many ns its wall clock is wrong, `boot` what its monotonic clock shows at the beginning."""
        self.unreachable_until = 0
        """Until when its requests do not arrive."""


class Process:
    """A process: it is alive, paused or dead."""

    def __init__(self, host: Host, name: str, pid: int) -> None:
        self.host, self.name, self.pid = host, name, pid
        self.dead = False
        self.paused_until = 0
        self.tasks: dict[Task, None] = {}
        """Its threads, in the order in which they began: nothing may depend on addresses in memory."""


class Task:
    """One thread of a process."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str, work: Callable[[], Any]) -> None:
        self.process, self.name, self.done = process, name, False
        self.turn = 0
        """Which of the entries in the queue counts: later wake-ups replace earlier ones."""
        self.woken = False
        self.ends: list[Task] = []
        self._scheduler, self._work = scheduler, work
        self.greenlet = greenlet(self._run, scheduler.hub)

    def _run(self) -> None:
        try:
            if not self.process.dead:
                self._work()
        except Killed:
            pass
        except BaseException as error:
            self._scheduler.failed(self, error)
        finally:
            self.done = True
            self.process.tasks.pop(self, None)
            for waiting in self.ends:
                self._scheduler.wake(waiting)


class Scheduler:
    """Runs tasks in the order of their times. Everything random in a history comes from `random`."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        """Begin a history; `only` has the numbers of the faults that happen, as a shrunk history has them; None: all."""
        self.random = random.Random(seed)
        self.only = only
        self.faults = 0
        """How many faults were due."""
        self.struck = 0
        """How many of them happened."""
        self.hub = getcurrent()
        self.now = 0
        self.steps = 0
        self.current: Task | None = None
        self.outside = Process(Host("outside"), "outside", 1)
        """The process of code that runs outside all tasks."""
        self.on_failure: Callable[[Task, BaseException], None] = lambda task, error: None
        self._queue: list[tuple[int, int, int, Task]] = []
        self._entries = 0
        self._raised: BaseException | None = None
        self._limit = _NEVER
        """Until when the tasks run that have a turn."""

    @property
    def process(self) -> Process:
        """The process that runs now."""
        return self.outside if self.current is None else self.current.process

    def strikes(self) -> bool:
        """Count a fault that is due; return whether it happens."""
        self.faults += 1
        struck = self.only is None or self.faults in self.only
        self.struck += struck
        return struck

    def below(self, limit: int) -> int:
        """Return a random number from 0 on, faster than `randrange`."""
        return int(self.random.random() * limit)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Give the history the random numbers that it would get without this block."""
        state = self.random.getstate()
        try:
            yield
        finally:
            self.random.setstate(state)

    def spawn(self, work: Callable[[], Any], process: Process, name: str = "", after: int = 0) -> Task:
        """Start a task of a process."""
        task = Task(self, process, name, work)
        process.tasks[task] = None
        self._push(task, self.now + after)
        return task

    def pause(self, ns: int) -> None:
        """Let others run, and go on after this time."""
        task = self.current
        if task is None or task.process.dead:
            task = self._task()
        at = self.now + ns if ns > 0 else self.now
        queue = self._queue
        if at <= self._limit and (not queue or at < queue[0][0]) and task.process.paused_until <= at:
            # Nobody else has a turn before that: switching to another task and back costs more than most steps.
            self.now = at
            self.steps += 1
            return
        self._push(task, at)
        self._switch(task)

    def block(self, ns: int | None = None) -> bool:
        """Wait until another task wakes this one; return False if the time passed before that."""
        task = self._task()
        task.woken = False
        if ns is None:
            task.turn += 1
        else:
            self._push(task, self.now + max(ns, 0))
        self._switch(task)
        return task.woken

    def wake(self, task: Task) -> None:
        """Let a blocked task run."""
        if not task.done:
            task.woken = True
            self._push(task, self.now)

    def kill(self, process: Process) -> None:
        """End a process at once. Requests that it has sent may still take effect."""
        process.dead, process.paused_until = True, 0
        for task in list(process.tasks):
            if task is not self.current:
                self._push(task, self.now)

    def run(self, until: Callable[[], bool] = lambda: False, limit: int | None = None) -> bool:
        """Run tasks until the condition holds; False if nothing is left to do before, or the time `limit` has come."""
        queue = self._queue
        self._limit = _NEVER if limit is None else limit
        while queue:
            at, _, turn, task = queue[0]
            if turn != task.turn or task.done:
                heappop(queue)
                continue
            if limit is not None and at > limit:
                self.now = limit
                return False
            heappop(queue)
            held = task.process.paused_until
            if held > at and held > self.now:
                self._push(task, held)
                continue
            self.now = max(self.now, at)
            self.steps += 1
            self.current = task
            task.greenlet.switch()
            self.current = None
            if self._raised is not None:
                error, self._raised = self._raised, None
                raise error
            if until():
                return True
        return False

    def failed(self, task: Task, error: BaseException) -> None:
        """Note that a task ended with an error. A violation ends the history."""
        if isinstance(error, Violation):
            self._raised = error
            return
        try:
            self.on_failure(task, error)
        except BaseException as raised:
            self._raised = raised

    def _task(self) -> Task:
        if self.current is None:
            raise RuntimeError("only a task can wait")
        if self.current.process.dead:
            raise Killed
        return self.current

    def _switch(self, task: Task) -> None:
        self.hub.switch()
        if task.process.dead:
            raise Killed

    def _push(self, task: Task, at: int) -> None:
        task.turn += 1
        self._entries += 1
        # Entries of one time run in the order in which they came: the seed is in the times.
        heappush(self._queue, (at, self._entries, task.turn, task))
