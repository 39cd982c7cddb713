"""C11 on etcd: the leader of three members is killed, then all three, under 4 writers and 8 readers."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from servers.stores import running_etcd
from support.waiting import IN_TIME, SOON, eventually
from tidewheel import cells
from tidewheel._cells import record as records
from tidewheel._cells.backends.etcd_client import Address, EtcdClient, from_base64, to_base64

EXCHANGES, WRITERS, READERS = 2_000, 4, 8


def etcd_s_own_history(cluster):
    """Return (version, value) of every write that etcd ever committed to the cell, by etcd's own log of revisions."""
    client = EtcdClient(Address.parse(cluster.url()))
    endpoint = client.address.endpoints[cluster.leader()]
    key = to_base64(b"tests/default/x")
    newest = client.call(endpoint, "/v3/kv/range", {"key": key}, SOON)["kvs"][0]["mod_revision"]
    stream = client.stream(endpoint, "/v3/watch", {"create_request": {"key": key, "start_revision": 1}})
    history = []
    for message in stream:
        for event in message.get("events", ()):
            record = records.decode(from_base64(event["kv"]["value"]), "x")
            history.append((int(event["kv"]["mod_revision"]), int.from_bytes(record.value[1:], "big")))
        if history and history[-1][0] == int(newest):
            break
    stream.close()
    client.close()
    return history


@pytest.mark.parametrize("what", ["the leader", "the whole cluster"])
def test_c11_every_acknowledged_exchange_is_in_the_history_in_order_once(tmp_path, what, capsys):
    with running_etcd(tmp_path, members=3, election_ms=1000) as cluster:
        connections = [cells.open(cluster.url(), timeout="30 s") for _ in range(WRITERS + 2)]
        writers = [connection.writer("x", int) for connection in connections[:WRITERS]]
        readers = [connections[WRITERS + number % 2].reader("x", int) for number in range(READERS)]
        tickets, applied, maybes = iter(range(2**40, 2**41)), [], []
        lock, issued = threading.Lock(), [0]

        def run(writer):
            while True:
                with lock:
                    if issued[0] >= EXCHANGES:
                        return
                    issued[0] += 1
                    value = next(tickets)
                seen = writer.snapshot()
                try:
                    done = writer.compare_exchange_at(seen.version, value)
                except cells.Offline as error:
                    if error.maybe:
                        maybes.append(value)
                    continue
                if done.applied:
                    applied.append((done.version, seen.version, value, time.monotonic()))

        threads = [threading.Thread(target=run, args=(writer,)) for writer in writers]
        for thread in threads:
            thread.start()
        eventually(lambda: issued[0] > EXCHANGES // 3)
        if what == "the leader":
            cluster.kill(cluster.leader())
        else:
            cluster.kill()
            cluster.start()
        for thread in threads:
            thread.join()

        history = etcd_s_own_history(cluster)
        assert [version for version, _ in history] == sorted({version for version, _ in history})
        committed = dict(history)
        assert len(set(committed.values())) == len(history), "no value was committed twice"
        for version, _, value, _ in applied:
            assert committed[version] == value
        before = {
            version: previous for (previous, _), (version, _) in zip([(0, None), *history], history, strict=False)
        }
        assert all(before[version] == base for version, base, _, _ in applied), "each replaced what it had compared"
        unexplained = set(committed.values()) - {value for _, _, value, _ in applied} - set(maybes)
        assert not unexplained, "what is in the history was acknowledged, or in doubt"
        for reader in readers:
            assert reader.when.reaches(history[-1][0], timeout=IN_TIME) == history[-1]

        moments = sorted(moment for *_, moment in applied)
        gap = max(later - earlier for earlier, later in itertools.pairwise(moments))
        with capsys.disabled():
            print(
                f"\n{what} killed: {len(applied)} of {issued[0]} exchanges applied, {len(maybes)} in doubt, "
                f"longest gap in service {gap:.2f} s"
            )
        for connection in connections:
            connection.close()
