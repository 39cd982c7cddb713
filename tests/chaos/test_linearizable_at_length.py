"""Cells on an etcd of three members stay linearizable through thousands of operations and faults of every kind.

Three clients reach the members over networks of their own. Meanwhile members are killed and paused, among them the leader,
networks are cut, held, delayed and lose answers, and the clock of the clients jumps. Each round has a cell of its own, since
a history with many operations of unknown outcome takes too long to check.
`TIDEWHEEL_OPERATIONS=20000 TIDEWHEEL_FAULT_SEED=NUMBER` sets how many there are, and repeats the faults of an earlier run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acceptance.test_c11_linearizable import run
from servers.stores import Etcd, running_etcd
from servers.tcp_proxy import TcpProxy
from support.linearizability import READ, Recorder, is_linearizable
from support.waiting import IN_TIME
from tidewheel import cells

CLIENTS, EACH = 3, 40
OPERATIONS = int(os.environ.get("TIDEWHEEL_OPERATIONS", "3000"))

Fault = Callable[[random.Random], contextlib.AbstractContextManager[None]]


class Faults:
    """What happens to the members, the networks of the clients, and their clock."""

    def __init__(self, etcd: Etcd, networks: list[list[TcpProxy]], monkeypatch: pytest.MonkeyPatch) -> None:
        self._etcd, self._networks = etcd, networks
        self._ahead = 0
        true_time, true_time_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: true_time() + self._ahead)
        monkeypatch.setattr(time, "time_ns", lambda: true_time_ns() + self._ahead * 10**9)
        self.kinds: dict[str, Fault] = {
            "leader killed": lambda draw: self._killed([etcd.leader()]),
            "two members killed": lambda draw: self._killed(draw.sample(list(etcd.members), 2)),
            "leader paused": lambda draw: self._paused(etcd.leader()),
            "member paused": lambda draw: self._paused(draw.choice(list(etcd.members))),
            "connections cut": lambda draw: self._network(draw, TcpProxy.cut),
            "connections forgotten": lambda draw: self._network(draw, TcpProxy.forget),
            "partition, no answer": lambda draw: self._network(draw, TcpProxy.hold),
            "partition, refused": lambda draw: self._network(draw, _refuse),
            "slow network": lambda draw: self._network(draw, _slow),
            "answer lost": lambda draw: self._network(draw, _lose_answer),
            "clock jump": self._clock,
        }

    @contextlib.contextmanager
    def _killed(self, members: list[int]) -> Iterator[None]:
        self._etcd.kill(*members)
        try:
            yield
        finally:
            self._etcd.start(*members)

    @contextlib.contextmanager
    def _paused(self, member: int) -> Iterator[None]:
        process = self._etcd._processes[member]
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def _network(self, draw: random.Random, does: Callable[[TcpProxy], object]) -> Iterator[None]:
        """Some clients lose some of the members, or all."""
        hit = [
            proxy
            for network in draw.sample(self._networks, draw.randint(1, CLIENTS))
            for proxy in draw.sample(network, draw.choice([1, 2, 3, 3]))
        ]
        for proxy in hit:
            does(proxy)
        try:
            yield
        finally:
            for proxy in hit:
                proxy.lose_answer_to = None
                proxy.restore()

    @contextlib.contextmanager
    def _clock(self, draw: random.Random) -> Iterator[None]:
        self._ahead = draw.choice([-86_400, -60, -5, 5, 60, 86_400])
        yield
        self._ahead = 0


def _refuse(proxy: TcpProxy) -> None:
    proxy.refuses = True
    proxy.cut()


def _slow(proxy: TcpProxy) -> None:
    proxy.delay = 0.05


def _lose_answer(proxy: TcpProxy) -> None:
    proxy.lose_answer_to = b"/v3/kv/txn"


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_cells_stay_linearizable_while_etcd_and_its_network_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seed = int(os.environ.get("TIDEWHEEL_FAULT_SEED") or random.SystemRandom().randrange(2**31))
    print(f"seed {seed}")
    draw = random.Random(seed)
    operations, maybes, happened = 0, 0, Counter[str]()
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(tmp_path / "etcd", members=3))
        networks = [[stack.enter_context(TcpProxy(port)) for port in etcd.client_ports] for _ in range(CLIENTS)]
        urls = ["etcd://" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in each) + "/x" for each in networks]
        clients = [stack.enter_context(cells.open(url)) for url in urls]
        direct = stack.enter_context(cells.open(etcd.url("x")))
        faults = Faults(etcd, networks, monkeypatch)
        began, rounds = time.monotonic(), 0
        while operations < OPERATIONS:
            rounds += 1
            writers = [client.writer(f"cell-{rounds}", int) for client in clients]
            recorder, stop = Recorder(), threading.Event()
            threads = [
                threading.Thread(target=run, args=(recorder, writer, 10 * rounds + n, stop, EACH, "1 s"))
                for n, writer in enumerate(writers, 1)
            ]
            for thread in threads:
                thread.start()
            try:
                while any(thread.is_alive() for thread in threads):
                    kind = draw.choice(list(faults.kinds))
                    with faults.kinds[kind](draw):
                        stop.wait(draw.uniform(0.1, 1.5))
                    happened[kind] += 1
                    stop.wait(draw.uniform(0.0, 0.5))
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            final = Recorder()
            last = direct.writer(f"cell-{rounds}", int)
            final.record(lambda last=last: last.refresh(timeout=IN_TIME).value, READ)
            history = recorder.history + final.history
            for cell in (*writers, last):
                cell.close()
            operations += len(history)
            maybes += sum(operation.maybe for operation in history)
            assert is_linearizable(history), f"seed {seed}, round {rounds}: {history}"
        print(
            f"{operations} operations, {maybes} of unknown outcome, in {rounds} rounds and {time.monotonic() - began:.0f} s; "
            f"{sum(happened.values())} faults: {dict(happened.most_common())}"
        )
