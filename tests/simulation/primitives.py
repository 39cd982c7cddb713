"""Threads, locks, executors, clocks and random numbers that belong to the scheduler.

Each stands in for what the modules of the same name give: `patched.py` puts them there. They ask for the current world at each
use, so that one installation serves all histories.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from simulation.scheduler import EPOCH, SECOND, Scheduler, Task

_world: list[Scheduler] = []
_TOO_LONG_S = 10**8


def scheduler() -> Scheduler:
    """Return the scheduler of the history that is played."""
    return _world[-1]


def enter(new: Scheduler) -> None:
    """Make a scheduler the one that all primitives use."""
    _world[:] = [new]
    _threads.clear()


def _ns(seconds: float | None) -> int | None:
    # Any wait takes time: a loop that waits for a moment which rounding puts a little later must get there.
    return None if seconds is None or seconds > _TOO_LONG_S else max(1, int(seconds * SECOND))


class Lock:
    """A lock that tasks wait for in order."""

    def __init__(self) -> None:
        self._holder: Task | None = None
        self._depth = 0
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = scheduler()
        while self._taken(world.current):
            if not blocking:
                return False
            self._waiting.append(world._task())
            world.block(None if timeout < 0 else _ns(timeout))
            if timeout >= 0 and self._taken(world.current):
                return False
        self._holder, self._depth = world.current, self._depth + 1
        return True

    def _taken(self, task: Task | None) -> bool:
        # A killed process took its locks with it. Locks of a module outlive it here, as they do not in reality.
        if self._depth and self._holder is not None and (self._holder.done or self._holder.process.dead):
            self._depth = 0
        return self._depth > 0

    def release(self) -> None:
        self._depth -= 1
        if not self._depth and self._waiting:
            scheduler().wake(self._waiting.pop(0))

    def locked(self) -> bool:
        return self._depth > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """A lock that its holder may take again."""

    def _taken(self, task: Task | None) -> bool:
        return super()._taken(task) and self._holder is not task


class Condition:
    """A condition with its lock."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: list[Task] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        world = scheduler()
        depth, self._lock._depth = self._lock._depth, 1
        self._lock.release()
        self._waiting.append(world._task())
        try:
            return world.block(_ns(timeout))
        finally:
            if world.current in self._waiting:
                self._waiting.remove(world.current)
            if not world.process.dead:
                self._lock.acquire()
                self._lock._depth = depth

    def wait_for(self, ready: Callable[[], Any], timeout: float | None = None) -> Any:
        world = scheduler()
        limit = _ns(timeout)
        end = None if limit is None else world.now + limit
        while not (found := ready()):
            if end is not None and world.now >= end:
                break
            self.wait(None if end is None else (end - world.now) / SECOND)
        return found

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            scheduler().wake(self._waiting.pop(0))

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """A flag that tasks wait for."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            scheduler().wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        world = scheduler()
        limit = _ns(timeout)
        end = None if limit is None else world.now + limit
        while not self._set and (end is None or world.now < end):
            self._waiting.append(world._task())
            world.block(None if end is None else end - world.now)
        return self._set


class Thread:
    """A thread: another task of the process that starts it."""

    def __init__(
        self,
        target: Callable[..., Any] | None = None,
        name: str = "",
        daemon: bool = False,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        self._work = lambda: target and target(*args, **(kwargs or {}))
        self.name, self.daemon = name, daemon
        self.task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self.task is None else id(self.task)

    def start(self) -> None:
        world = scheduler()
        self.task = world.spawn(self._work, world.process, self.name, world.random.randrange(1, 100_000))
        _threads[self.task] = self

    def is_alive(self) -> bool:
        return self.task is not None and not self.task.done and not self.task.process.dead

    def join(self, timeout: float | None = None) -> None:
        world = scheduler()
        limit = _ns(timeout)
        end = None if limit is None else world.now + limit
        while self.task is not None and not self.task.done and (end is None or world.now < end):
            self.task.ends.append(world._task())
            world.block(None if end is None else end - world.now)


_threads: dict[Task, Thread] = {}


def _current_thread() -> Any:
    return _threads.get(scheduler().current) or _MAIN  # type: ignore[arg-type]


_MAIN = Thread(name="main")

threads = SimpleNamespace(
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Event=Event,
    Thread=Thread,
    current_thread=_current_thread,
    main_thread=lambda: None,
    get_ident=lambda: id(scheduler().current),
    local=SimpleNamespace,
)
"""Stands in for the module `threading`."""


class Future:
    """The result of a work that a task does."""

    def __init__(self) -> None:
        self._done = Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def set_result(self, value: Any) -> None:
        self._value = value
        self._done.set()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._done.wait(timeout)
        return self._error

    def result(self, timeout: float | None = None) -> Any:
        self._done.wait(timeout)
        if self._error is not None:
            raise self._error
        return self._value


class Executor:
    """A pool: each work is a task of its own, so that the works of one call interleave."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "", **_: Any) -> None:
        self._name = thread_name_prefix
        self._futures: list[Future] = []

    def submit(self, work: Callable[..., Any], *args: Any, **keywords: Any) -> Future:
        future = Future()

        def run() -> None:
            try:
                future.set_result(work(*args, **keywords))
            except Exception as error:
                future.set_exception(error)

        Thread(run, self._name).start()
        self._futures.append(future)
        return future

    def map(self, work: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        futures = [self.submit(work, *row) for row in zip(*columns, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        for future in self._futures if wait else ():
            future._done.wait()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def wait_all(futures: Iterable[Future], timeout: float | None = None) -> Any:
    """Stand in for `concurrent.futures.wait`."""
    futures = list(futures)
    for future in futures:
        future._done.wait(timeout)
    return SimpleNamespace(done={future for future in futures if future.done()})


def _host() -> Any:
    return scheduler().process.host


def _monotonic_ns() -> int:
    world = scheduler()
    return world.now + world.process.host.boot


def _wall_ns() -> int:
    world = scheduler()
    return EPOCH + world.now + world.process.host.wall


class _Clock(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


clock = _Clock(
    time=lambda: _wall_ns() / 1e9,
    time_ns=_wall_ns,
    monotonic=lambda: _monotonic_ns() / 1e9,
    monotonic_ns=_monotonic_ns,
    perf_counter=lambda: _monotonic_ns() / 1e9,
    sleep=lambda seconds: scheduler().pause(int(seconds * SECOND)),
)
"""Stands in for the module `time`."""

tokens = SimpleNamespace(
    token_hex=lambda n=16: scheduler().random.randbytes(n).hex(),
    token_bytes=lambda n=16: scheduler().random.randbytes(n),
    randbelow=lambda n: scheduler().random.randrange(n),
)
"""Stands in for the module `secrets`."""


class _Dice(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return getattr(scheduler().random, name)


dice = _Dice()
"""Stands in for the module `random`."""

network = SimpleNamespace(gethostname=lambda: _host().name)
"""Stands in for the module `socket`."""

uuids = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=scheduler().random.randbytes(16).hex()))
"""Stands in for the module `uuid`, for tokens."""
