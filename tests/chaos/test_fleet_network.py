"""A fleet whose network to etcd is cut, held, delayed and forgotten: all shards continue, and no living node is removed.

Three nodes reach the three members of an etcd cluster through proxies. The test reads the same etcd directly.
`TIDEWHEEL_FAULT_SEED=NUMBER` repeats the faults of an earlier long run, which prints its seed.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from servers.stores import running_etcd
from servers.tcp_proxy import TcpProxy
from support.fleet_nodes import SHARDS
from support.fleet_processes import Processes
from support.internals import shard_of
from support.waiting import SOON, eventually
from tidewheel._cells.lease import NAMESPACE as LEASES
from tidewheel._cells.lease import Tenure
from tidewheel.cells import open as open_cells
from tidewheel.fleet import Coordinator

NODES = "abc"
KEYS = [next(f"k{n}" for n in range(1000) if shard_of(f"k{n}", SHARDS) == shard) for shard in range(SHARDS)]
"""A key of each shard."""


class Witness:
    """Sees every change of the assignment and every renewal of a lease, by a connection that no fault touches."""

    def __init__(self, connection, lease: float) -> None:
        self._coordinator = Coordinator(connection, "orders", "witness", SHARDS)
        self._leases = connection.map_reader("fleet/orders", Tenure, namespace=LEASES)
        self._lease = lease
        self._renewed: dict[str, tuple[int, float]] = {}
        self._members: set[str] = set()
        self.removed: list[str] = []
        """What was seen of each removal of a node that had renewed its lease in time, or whose network had a fault."""
        self.fault_at = 0.0
        """When a fault was last at work."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._done.wait(0.02):
            now = time.monotonic()
            for node in NODES:
                version = self._leases.snapshot(node).version
                if version != self._renewed.get(node, (0, 0.0))[0]:
                    self._renewed[node] = (version, now)
            members = set(self._coordinator.current_assignment().members)
            for node in self._members - members:
                still, calm = now - self._renewed[node][1], now - self.fault_at
                if still < self._lease or calm < self._lease:
                    self.removed.append(f"{node}, {still:.1f} s after it renewed and {calm:.1f} s after a fault")
            self._members = members

    @property
    def members(self) -> set[str]:
        return set(self._coordinator.current_assignment().members)

    def versions(self) -> dict[str, int]:
        """Return the version of every node's lease: it grows with every renewal."""
        return {node: self._leases.snapshot(node).version for node in NODES}

    def stands_still(self, seconds: float) -> bool:
        """Tell whether no lease was renewed for so long."""
        return time.monotonic() - max(at for _, at in self._renewed.values()) > seconds

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        self._coordinator.close()
        self._leases.close()


@dataclass
class Network:
    """The proxies before the members, the fleet behind them, and what was measured."""

    proxies: list[TcpProxy]
    fleet: Processes
    witness: Witness
    progress: list[tuple[float, float]] = field(default_factory=list)
    """For each fault: how many seconds after its end all shards had gone on, and all nodes had renewed their leases."""

    @contextmanager
    def fault(self, *what: Callable[[TcpProxy], None], of: list[TcpProxy] | None = None) -> Iterator[None]:
        """Do something to some of the proxies, or all, for a while."""
        marking = threading.Event()

        def mark() -> None:
            while not marking.wait(0.02):
                self.witness.fault_at = time.monotonic()

        thread = threading.Thread(target=mark)
        thread.start()
        try:
            for proxy in self.proxies if of is None else of:
                for each in what:
                    each(proxy)
            yield
        finally:
            for proxy in self.proxies:
                proxy.restore()
            marking.set()
            thread.join()

    def all_go_on(self) -> None:
        """Wait until every shard and every node has gone on after a fault."""
        began, before = time.monotonic(), self.witness.versions()
        self.all_shards_go_on()
        shards = time.monotonic() - began
        self.fleet.wait(
            lambda: all(version > before[node] for node, version in self.witness.versions().items()),
            "a renewal of every node",
        )
        self.progress.append((shards, time.monotonic() - began))
        assert self.witness.removed == []
        assert self.witness.members == set(NODES)

    def all_shards_go_on(self) -> None:
        """Send an event to each shard, and wait until all are published."""
        shared = self.fleet.shared
        for key in KEYS:
            shared.router.route(key, {"key": key, "amount": 1})
            shared.sent[key] += 1
            shared.amounts[key] += 1
        shared.router.flush()
        total = sum(shared.sent.values())
        self.fleet.wait(lambda: len(shared.published()) == total, "output of every shard")

    def closes(self, whenever: Callable[[], object]) -> None:
        """Open a connection, let something happen to the network, and see that closing the connection returns."""
        connection = open_cells(self.fleet.cells)
        connection.reader("x", int)
        whenever()
        closer = threading.Thread(target=connection.close, daemon=True)
        closer.start()
        closer.join(SOON)
        assert not closer.is_alive(), "close() has not returned"

    def end(self) -> None:
        """Tell all nodes to leave while their connections are being established again; see that they end, and count."""
        assert self.witness.removed == []
        with self.fault(TcpProxy.cut, slowly):
            for name in NODES:
                self.fleet.signal(name, signal.SIGTERM)
        for name in NODES:
            assert self.fleet.nodes[name].wait(SOON) == 0
        self.fleet.shared.check_exact()


def slowly(proxy: TcpProxy, delay: float = 0.1) -> None:
    proxy.delay = delay


def refuse(proxy: TcpProxy) -> None:
    proxy.refuses = True
    proxy.cut()


@contextmanager
def running(folder: Path, lease: float) -> Iterator[Network]:
    with ExitStack() as held:
        etcd = held.enter_context(running_etcd(folder / "etcd", members=3))
        proxies = [held.enter_context(TcpProxy(port)) for port in etcd.client_ports]
        through = f"etcd://{','.join(f'127.0.0.1:{proxy.port}' for proxy in proxies)}/fleet"
        fleet = Processes(folder, etcd.url("fleet"), f"{folder}/inbox", node_cells=through, lease=lease)
        held.callback(fleet.close)
        for name in NODES:
            fleet.start(name)
        for name in NODES:
            fleet.wait_for(name, "joined")
        witness = Witness(fleet.shared.connection, lease)
        held.callback(witness.close)
        eventually(lambda: witness.members == set(NODES), "all nodes in the assignment")
        network = Network(proxies, fleet, witness)
        network.all_shards_go_on()
        yield network


def test_shards_continue_after_every_fault_and_no_living_node_is_removed(tmp_path):
    lease = 4.0
    with running(tmp_path, lease) as network:
        network.closes(lambda: [proxy.forget() for proxy in network.proxies])
        network.all_go_on()
        for faults in ((TcpProxy.hold,), (refuse,)):
            with network.fault(*faults):
                # All leases have lapsed, and the nodes work on.
                eventually(lambda: network.witness.stands_still(1.2 * lease), "the end of all renewals")
                network.all_shards_go_on()
            network.all_go_on()
        network.end()


@pytest.mark.slow
def test_ten_minutes_of_random_faults(tmp_path):
    lease, minutes = 5.0, 10
    seed = int(os.environ.get("TIDEWHEEL_FAULT_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    draw = random.Random(seed)
    kinds = {
        "cut": (TcpProxy.cut,),
        "refuse": (refuse,),
        "hold": (TcpProxy.hold,),
        "delay": (slowly,),
        "forget": (TcpProxy.forget,),
    }
    with running(tmp_path, lease) as network:
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            kind = draw.choice(sorted(kinds))
            of = draw.sample(network.proxies, draw.choice([1, 2, 3, 3]))
            for_s = draw.uniform(0.0, 2.5 * lease)

            def happens(kind=kind, of=of, for_s=for_s) -> None:
                with network.fault(*kinds[kind], of=of):
                    threading.Event().wait(for_s)

            network.closes(happens) if draw.random() < 0.5 else happens()
            network.all_go_on()
            shards, nodes = network.progress[-1]
            print(
                f"{kind} of {len(of)} for {for_s:.1f} s: shards went on after {shards:.1f} s, nodes after {nodes:.1f} s"
            )
        worst = max(max(each) for each in network.progress)
        print(
            f"{len(network.progress)} faults; at most {worst:.1f} s = {worst / lease:.2f} lease times until all went on"
        )
        assert worst < 2 * lease
        network.end()
