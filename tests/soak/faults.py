"""The faults of the soak: each is at work within a `with`, and afterwards the lives that it touched must commit again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from servers.stores import Etcd
from servers.tcp_proxy import TcpProxy
from soak import clock
from soak.lives import Life
from support.waiting import eventually

RECOVERY_S = 600.0
"""How long a recovery may take on a machine that has much else to do."""
_MIB = 2**20

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


class Injector(threading.Thread):
    """Lets one fault of a list happen after the other, until it is stopped."""

    def __init__(self, name: str, faults: Sequence[Fault], seed: int, pause: tuple[float, float]) -> None:
        super().__init__(name=name, daemon=True)
        self.faults, self._draw, self._pause = faults, random.Random(seed), pause
        self.happened: list[Happened] = []
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self._began = time.monotonic()

    def run(self) -> None:
        weights = [fault.weight for fault in self.faults]
        while not self.stopping.wait(self._draw.uniform(*self._pause)):
            fault = self._draw.choices(self.faults, weights)[0]
            try:
                self._let_happen(fault)
            except Exception as error:
                self.failures.append(f"{fault.kind}: {error!r}")
                print(f"FAILURE {self.failures[-1]}", flush=True)

    def _let_happen(self, fault: Fault) -> None:
        began = time.monotonic()
        with fault.begin(self._draw):
            pass
        ended = time.monotonic()
        late = [life.name for life in fault.touches if not life.wait_for_commit(ended, RECOVERY_S)]
        took = max((_first(life, ended) for life in fault.touches), default=ended) - ended
        if late:
            self.failures.append(f"{fault.kind}: no commit of {late} within {RECOVERY_S:g} s")
        made = Happened(fault.kind, began - self._began, ended - began, None if late else took)
        self.happened.append(made)
        print(
            f"{made.at:7.1f} s  {made.kind}, {made.lasted:.1f} s; "
            + (f"recovered in {took:.1f} s" if made.recovery is not None else f"NOT RECOVERED: {late}"),
            flush=True,
        )


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
    filler = folder / "filler"

    @contextlib.contextmanager
    def happens(draw: random.Random) -> Iterator[None]:
        end = time.monotonic() + draw.uniform(3, 8)
        try:
            with filler.open("ab", buffering=0) as file:
                size = _MIB
                # Fill it again and again: what others delete meanwhile is taken too.
                while time.monotonic() < end:
                    try:
                        file.write(bytes(size))
                    except OSError:
                        size = max(4096, size // 4)
                        time.sleep(0.01 if size == 4096 else 0)
            yield
        finally:
            filler.unlink(missing_ok=True)

    return Fault("disk full", touches, happens, 2)


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
