"""The faults of the soak: each is at work within a `with`, and afterwards the lives that it touched must commit again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

from servers.stores import Etcd
from servers.tcp_proxy import TcpProxy
from soak import clock
from soak.lives import Life
from support.waiting import eventually

RECOVERY_S = 600.0
"""How long a recovery may take on a machine that has much else to do."""

At = AbstractContextManager[object]


@dataclass(frozen=True)
class Fault:
    kind: str
    touches: Sequence[Life]
    begin: Callable[[random.Random], At]
    weight: int = 1


@dataclass(frozen=True)
class Happened:
    kind: str
    at: float
    """Seconds since the start of the soak."""
    lasted: float
    recovery: float | None
    """Seconds until all that it touched had committed again; None if that took too long."""


class Group:
    """Faults of one part of the soak, dealt like cards: each once, and then each as often as it weighs, again and again."""

    def __init__(self, faults: Sequence[Fault], share: int, patient: bool = True) -> None:
        """Take how often this group has its turn, and whether a fault waits until all that it touches has recovered."""
        self.share, self.patient = share, patient
        self.at_work = False
        weighted = [fault for fault in faults for _ in range(fault.weight)]
        self._decks = chain([faults], repeat(weighted))
        self._deck: list[Fault] = []

    def deal(self, draw: random.Random, down: Container[Life]) -> Fault | None:
        """Return the next fault that can happen now, if there is one."""
        if self.at_work:
            return None
        if not self._deck:
            self._deck = list(next(self._decks))
            draw.shuffle(self._deck)
        for number, fault in enumerate(self._deck):
            if not self.patient or not any(life in down for life in fault.touches):
                return self._deck.pop(number)
        return None


class Injector(threading.Thread):
    """Starts a fault after each pause, until it is stopped. No fault waits for the recovery from another group's fault.

    A slow machine has no fewer faults: a process that is still recovering is spared, and the fault hits something else.
    """

    def __init__(self, groups: Sequence[Group], seed: int, pause: tuple[float, float]) -> None:
        super().__init__(name="faults", daemon=True)
        self._groups, self._draw, self._pause = groups, random.Random(seed), pause
        self.happened: list[Happened] = []
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self._began = time.monotonic()
        self._down: set[Life] = set()
        self._recovering: list[threading.Thread] = []

    def run(self) -> None:
        while not self.stopping.wait(self._draw.uniform(*self._pause)):
            while not self._start_one() and not self.stopping.wait(0.5):
                pass
        for thread in self._recovering:
            thread.join()

    def _start_one(self) -> bool:
        groups, shares = list(self._groups), [group.share for group in self._groups]
        while groups:
            group = self._draw.choices(groups, shares)[0]
            if fault := group.deal(self._draw, self._down):
                group.at_work = True
                if group.patient:
                    self._down.update(fault.touches)
                draw = random.Random(self._draw.random())
                thread = threading.Thread(
                    target=self._let_happen, args=(group, fault, draw), name=fault.kind, daemon=True
                )
                thread.start()
                self._recovering = [each for each in self._recovering if each.is_alive()] + [thread]
                return True
            del shares[groups.index(group)]
            groups.remove(group)
        return False

    def _let_happen(self, group: Group, fault: Fault, draw: random.Random) -> None:
        began = time.monotonic()
        try:
            try:
                with fault.begin(draw):
                    pass
            finally:
                group.at_work = False
            self._recover(fault, began, time.monotonic())
        except Exception as error:
            self._failed(f"{fault.kind}: {error!r}")
        finally:
            if group.patient:
                self._down.difference_update(fault.touches)

    def _recover(self, fault: Fault, began: float, ended: float) -> None:
        deadline = ended + RECOVERY_S
        late = [life.name for life in fault.touches if not life.wait_for_commit(ended, deadline - time.monotonic())]
        took = max((_first(life, ended) for life in fault.touches), default=ended) - ended
        made = Happened(fault.kind, began - self._began, ended - began, None if late else took)
        self.happened.append(made)
        print(
            f"{made.at:7.1f} s  {made.kind}, {made.lasted:.1f} s; "
            + (f"recovered in {took:.1f} s" if made.recovery is not None else f"NOT RECOVERED: {late}"),
            flush=True,
        )
        if late:
            self._failed(f"{fault.kind}: no commit of {late} within {RECOVERY_S:g} s")

    def _failed(self, text: str) -> None:
        self.failures.append(text)
        print(f"FAILURE {text}", flush=True)


def _first(life: Life, after: float) -> float:
    return next((at for at in reversed_until(life.commits, after)), after)


def reversed_until(times: list[float], after: float) -> Iterator[float]:
    """Yield the earliest of the times after a moment, if there is one."""
    earliest = None
    for at in reversed(times):
        if at <= after:
            break
        earliest = at
    if earliest is not None:
        yield earliest


def for_a_while(begin: Callable[[], object], end: Callable[[], object], least: float, most: float) -> Callable:
    """Return a fault that lasts for some seconds."""

    @contextlib.contextmanager
    def happens(draw: random.Random) -> Iterator[None]:
        begin()
        try:
            time.sleep(draw.uniform(least, most))
            yield
        finally:
            end()

    return happens


def at_once(do: Callable[[random.Random], object]) -> Callable:
    """Return a fault that is over when it has begun."""

    @contextlib.contextmanager
    def happens(draw: random.Random) -> Iterator[None]:
        do(draw)
        yield

    return happens


def killed(life: Life) -> Fault:
    return Fault(f"kill {life.name}", [life], at_once(lambda draw: life.signal(signal.SIGKILL)))


def paused(life: Life, most: float) -> Fault:
    stop, go_on = (lambda: life.signal(signal.SIGSTOP)), (lambda: life.signal(signal.SIGCONT))
    return Fault(f"pause {life.name}", [life], for_a_while(stop, go_on, 1, most))


def clock_jump(life: Life, path: Path) -> Fault:
    return Fault(f"clock jump of {life.name}", [life], at_once(lambda draw: clock.jump(path, draw.uniform(-25, 25))))


def overtaken(life: Life) -> Fault:
    """Another run takes over while the first is paused; the first wakes up, and must end by itself."""

    def happens(draw: random.Random) -> None:
        old = life.overtaken()
        if old is None:
            return
        try:
            if not life.wait_for_commit(time.monotonic(), RECOVERY_S):
                raise AssertionError(f"no commit of the run that took {life.name} over")
            os.killpg(old.pid, signal.SIGCONT)
            eventually(lambda: old.poll() is not None, f"the end of the run of {life.name} that was overtaken", 120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(old.pid, signal.SIGKILL)
            old.wait()

    return Fault(f"take over {life.name} while paused", [life], at_once(happens))


def full_disk(folder: Path, touches: Sequence[Life]) -> Fault:
    """Leave no byte free for some seconds; if the disk takes another byte all the time, that is a failure of the soak."""
    filler = folder / "filler"

    @contextlib.contextmanager
    def happens(draw: random.Random) -> Iterator[None]:
        end, was_full = time.monotonic() + draw.uniform(3, 8), False
        try:
            with filler.open("wb", buffering=0) as file:
                while time.monotonic() < end:  # Others delete files meanwhile.
                    _fill(file.fileno(), folder)
                    try:
                        os.pwrite(file.fileno(), b"x", os.fstat(file.fileno()).st_size)
                    except OSError:
                        was_full = True
                    time.sleep(0.01)
            assert was_full, f"{folder} always took another byte"
            yield
        finally:
            filler.unlink(missing_ok=True)

    return Fault("disk full", touches, happens, 2)


def _fill(file: int, folder: Path) -> None:
    while free := os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize:
        with contextlib.suppress(OSError):  # Somebody else took a part of it.
            os.posix_fallocate(file, os.fstat(file).st_size, free)


def server_killed(name: str, server: object, touches: Sequence[Life]) -> Fault:
    return Fault(f"kill {name}", touches, for_a_while(server.kill, server.start, 0.2, 6))  # type: ignore[attr-defined]


def network(name: str, proxies: Sequence[TcpProxy], touches: Sequence[Life], most: float = 10) -> list[Fault]:
    """Return what a network does to the connections to a server."""

    def each(do: Callable[[TcpProxy], object]) -> Callable[[], None]:
        return lambda: [do(proxy) for proxy in proxies] and None

    def slow(proxy: TcpProxy) -> None:
        proxy.delay = 0.3

    def refuse(proxy: TcpProxy) -> None:
        proxy.refuses = True
        proxy.cut()

    heal = each(TcpProxy.restore)
    return [
        Fault(f"{name}: connections cut", touches, at_once(lambda draw: each(TcpProxy.cut)())),
        Fault(f"{name}: connections forgotten", touches, at_once(lambda draw: each(TcpProxy.forget)())),
        Fault(f"{name}: partition, no answer", touches, for_a_while(each(TcpProxy.hold), heal, 1, most)),
        Fault(f"{name}: partition, refused", touches, for_a_while(each(refuse), heal, 1, most)),
        Fault(f"{name}: slow network", touches, for_a_while(each(slow), heal, 1, most)),
    ]


def etcd_faults(etcd: Etcd, touches: Sequence[Life]) -> list[Fault]:
    """Kill the leader, two of three members, and pause a member."""

    def away(members: Callable[[random.Random], Sequence[int]]) -> Callable:
        @contextlib.contextmanager
        def happens(draw: random.Random) -> Iterator[None]:
            chosen = members(draw)
            etcd.kill(*chosen)
            try:
                time.sleep(draw.uniform(0.2, 6))
                yield
            finally:
                etcd.start(*chosen)

        return happens

    return [
        Fault("kill the leader of etcd", touches, away(lambda draw: [etcd.leader()]), 2),
        Fault("kill two of three members of etcd", touches, away(lambda draw: draw.sample(list(etcd.members), 2))),
    ]
