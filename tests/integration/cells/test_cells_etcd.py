"""etcd: passwords, certificates, several members, and writes whose answer was lost."""

from __future__ import annotations

import os
import signal
import socket
import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.stores import free_ports, running_etcd
from servers.tcp_proxy import TcpProxy
from support.waiting import IN_TIME, SOON
from tidewheel import cells
from tidewheel._cells.backends.etcd import EtcdBackend
from tidewheel._cells.backends.etcd_client import Address, EtcdClient, NoAnswer, to_base64
from tidewheel._cells.backends.etcd_watch import Delivered, Probe, is_silent
from tidewheel._cells.deadline import Deadline
from tidewheel.cells import AccessRefused, Offline, TooLarge
from tidewheel.errors import ConfigError


@pytest.fixture
def proxied(etcd):
    prefix = uuid.uuid4().hex
    with TcpProxy(etcd.client_ports[0]) as proxy:
        yield proxy, f"etcd://127.0.0.1:{proxy.port}/{prefix}", etcd.url(prefix)


def test_a_write_whose_answer_was_lost_is_found_to_have_happened(proxied):
    proxy, through, _ = proxied
    with cells.open(through) as connection:
        writer = connection.writer("x", int)
        writer.write(1)
        proxy.lose_answer_to = b"/v3/kv/txn"
        done = writer.compare_exchange(1, 2)
        assert proxy.lost.is_set()
        assert done == (True, writer.version(), 1)
        assert writer.refresh() == (done.version, 2)


def test_a_lost_answer_to_an_overwritten_write_is_found_in_the_history(proxied):
    proxy, through, direct = proxied
    with cells.open(through) as connection, cells.open(direct) as other:
        writer, rival = connection.writer("x", int), other.writer("x", int)
        base = writer.write(1)
        backend = connection._backend
        real, rivals = backend._client.call, []

        def overwritten_before_the_second_try(endpoint, path, *rest):
            if path == "/v3/kv/txn" and proxy.lost.is_set() and not rivals:
                rivals.extend([rival.write(3), rival.write(4)])
            return real(endpoint, path, *rest)

        backend._client.call = overwritten_before_the_second_try
        proxy.lose_answer_to = b"/v3/kv/txn"
        done = writer.compare_exchange_at(base, 2)
        assert done.applied
        assert base < done.version < rivals[0] < rivals[1]
        assert writer.refresh() == (rivals[1], 4)


def test_when_the_history_is_compacted_the_write_is_in_doubt(proxied, etcd):
    proxy, through, direct = proxied
    with cells.open(through, timeout="2 s") as connection, cells.open(direct) as other:
        writer, rival = connection.writer("x", int), other.writer("x", int)
        base = writer.write(1)
        backend = connection._backend
        real, rivals = backend._client.call, []

        def compacted_before_the_second_try(endpoint, path, *rest):
            if path == "/v3/kv/txn" and proxy.lost.is_set() and not rivals:
                rivals.append(rival.write(3))
                etcd.post(0, "/v3/kv/compaction", {"revision": rivals[0]})
            return real(endpoint, path, *rest)

        backend._client.call = compacted_before_the_second_try
        proxy.lose_answer_to = b"/v3/kv/txn"
        with pytest.raises(Offline, match="whether this write happened is not known") as caught:
            writer.compare_exchange_at(base, 2)
        assert caught.value.maybe
        assert caught.value.value == 2


def test_a_lost_answer_from_a_server_that_is_gone_raises_in_doubt(etcd):
    with cells.open(etcd.url(uuid.uuid4().hex)) as connection:
        writer = connection.writer("x", int)

        def gone(*_):
            raise NoAnswer("the answer was lost", sent=True)

        connection._backend._client.call = gone
        with pytest.raises(Offline, match="does not answer") as caught:
            writer.write(1, timeout="0.1 s")
        assert caught.value.maybe


def test_a_compacted_watch_starts_again(etcd):
    with cells.open(etcd.url(uuid.uuid4().hex)) as connection, cells.open(connection.url) as other:
        reader, writer = connection.reader("x", int), other.writer("x", int)
        reader.when.reaches(writer.write(1), timeout=IN_TIME)
        for number in range(3):
            version = writer.write(number)
        etcd.post(0, "/v3/kv/compaction", {"revision": version})
        connection._backend._watch.interrupt()
        assert reader.when.reaches(writer.write(5), timeout=IN_TIME).value == 5


def test_a_key_deleted_by_hand_can_be_written_again(etcd):
    prefix = uuid.uuid4().hex
    with cells.open(etcd.url(prefix)) as connection, cells.open(etcd.url(prefix)) as other:
        writer, reader = connection.writer("x", int), other.reader("x", int)
        version = writer.write(1)
        etcd.post(0, "/v3/kv/deleterange", {"key": to_base64(f"{prefix}/default/x".encode())})
        again = writer.write(2)
        assert again > version
        assert reader.when.reaches(again, timeout=IN_TIME) == (again, 2)


def test_a_key_deleted_by_hand_is_seen_and_refreshed(etcd):
    prefix = uuid.uuid4().hex
    with cells.open(etcd.url(prefix)) as connection, cells.open(etcd.url(prefix)) as other:
        writer, reader = connection.writer("x", int), other.reader("x", int)
        members = other.map_reader("members", int)
        version = writer.write(1)
        connection.map_writer("members", int).write("a", 1)
        members.when.holds("a", timeout=IN_TIME)
        reader.when.reaches(version, timeout=IN_TIME)
        for name in ("x", "members/a"):
            etcd.post(0, "/v3/kv/deleterange", {"key": to_base64(f"{prefix}/default/{name}".encode())})
        assert reader.refresh().value is None
        assert reader.version() > version
        assert dict(members.refresh()) == {}
        writer.when.reaches(version + 1, timeout=IN_TIME)
        assert writer.is_empty()
        done = writer.compare_exchange(1, 5)
        assert (done.applied, done.seen) == (False, None)
        assert writer.compare_exchange_at(writer.version(), 6).applied
        assert reader.when.updated(timeout=IN_TIME, since=writer.version() - 1).value == 6


def test_a_key_deleted_between_watches_is_seen_by_the_next_watch(etcd):
    prefix = uuid.uuid4().hex
    with cells.open(etcd.url(prefix)) as connection:
        reader, writer = connection.reader("x", int), connection.writer("x", int)
        version = writer.write(1)
        reader.when.reaches(version, timeout=IN_TIME)
        report = connection._backend._report
        connection._backend._report = lambda *_: None
        etcd.post(0, "/v3/kv/deleterange", {"key": to_base64(f"{prefix}/default/x".encode())})
        connection._backend._report = report
        connection._backend._watch.interrupt()
        assert reader.when.reaches(version + 1, timeout=IN_TIME).value is None


def test_keys_of_other_programs_are_ignored(tmp_path):
    with (
        running_etcd(tmp_path) as own,
        cells.open(f"etcd://{own.hosts}") as one,
        cells.open(f"etcd://{own.hosts}") as two,
    ):
        writer, reader, members = one.writer("x", int), two.reader("x", int), two.map_reader("members", str)
        for key in (b"\xff\xfe", b"default/members/a//b", b"default/members/" + b"a" * 300):
            own.post(0, "/v3/kv/put", {"key": to_base64(key), "value": to_base64(b"1")})
        version = writer.write(1)
        assert reader.when.reaches(version, timeout=IN_TIME).value == 1
        assert dict(members.refresh()) == {}
        assert "x" in two.names()


def test_a_member_that_hangs_is_left_for_another(tmp_path):
    """Stopped, not killed: its sockets stay open and say nothing."""
    with running_etcd(tmp_path, members=3) as cluster, cells.open(cluster.url()) as connection:
        writer = connection.writer("x", int)
        writer.write(1)
        reader = connection.reader("x", int)
        watched = connection._backend._watch.endpoint
        hung = cluster.client_ports.index(watched.port)
        pid = cluster._processes[hung].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            reader.when.offline(timeout=IN_TIME)
            reader.when.online(timeout=IN_TIME)
            assert connection._backend._watch.endpoint != watched
            assert reader.when.reaches(writer.write(2, timeout=IN_TIME), timeout=IN_TIME).value == 2
        finally:
            os.kill(pid, signal.SIGCONT)


def test_one_member_of_three_is_enough_to_begin_with(etcd):
    dead = free_ports(2)
    url = f"etcd://127.0.0.1:{dead[0]},127.0.0.1:{dead[1]},127.0.0.1:{etcd.client_ports[0]}/{uuid.uuid4().hex}"
    with cells.open(url) as connection:
        assert connection.writer("x", int).write(1) > 0


def threads_of(connection):
    """Return the threads of this process that serve a connection; those of other tests may come and go."""
    return {thread for thread in threading.enumerate() if thread.name.startswith(f"cells {connection.url} ")}


def closing(connection) -> threading.Thread:
    """Close a connection in a thread of its own, so that a close that never returns fails its test and no other."""
    thread = threading.Thread(target=connection.close, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("moment", ["before the stream is opened", "when the stream was opened"])
def test_close_returns_while_the_watch_is_being_established_again(proxied, moment):
    proxy, through, _ = proxied
    connection = cells.open(through)
    client = connection._backend._client
    real, reached, closed = client.stream, threading.Event(), threading.Event()

    def paused(*arguments):
        stream = real(*arguments) if moment == "when the stream was opened" else None
        reached.set()
        assert closed.wait(SOON)
        return stream or real(*arguments)

    client.stream = paused
    proxy.cut()
    assert reached.wait(SOON)
    closer = closing(connection)
    assert connection._backend._watch._stop.wait(SOON)
    closed.set()
    closer.join(SOON)
    assert not closer.is_alive()
    assert not threads_of(connection)


def test_a_watch_that_falls_silent_is_noticed_and_begun_again(proxied):
    proxy, through, direct = proxied
    with cells.open(through) as connection, cells.open(direct) as other:
        reader, writer = connection.reader("x", int), other.writer("x", int)
        reader.when.reaches(writer.write(1), timeout=IN_TIME)
        proxy.forget()
        assert reader.when.reaches(writer.write(2), timeout=IN_TIME).value == 2


def test_a_deletion_on_a_silent_watch_is_noticed(proxied, etcd):
    proxy, through, direct = proxied
    with cells.open(through) as connection, cells.open(direct) as other:
        reader, writer = connection.reader("x", int), other.writer("x", int)
        version = writer.write(1)
        reader.when.reaches(version, timeout=IN_TIME)
        proxy.forget()
        etcd.post(0, "/v3/kv/deleterange", {"key": to_base64(f"{through.rpartition('/')[2]}/default/x".encode())})
        assert reader.when.reaches(version + 1, timeout=IN_TIME).value is None


def test_connections_are_kept_alive_by_the_system(etcd):
    client = EtcdClient(Address.parse(etcd.url()))
    endpoint = client.address.endpoints[0]
    client.call(endpoint, "/v3/kv/range", {"key": to_base64(b"x")}, SOON)
    (idle,) = client._idle[endpoint]
    assert idle.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    client.close()


def test_one_silent_connection_ends_the_idle_ones_of_all_members(etcd):
    """Otherwise each of them costs a request its whole time, and a lease lapses meanwhile."""
    body = {"key": to_base64(b"x")}
    with TcpProxy(etcd.client_ports[0]) as one, TcpProxy(etcd.client_ports[0]) as two:
        client = EtcdClient(Address.parse(f"etcd://127.0.0.1:{one.port},127.0.0.1:{two.port}/x"))
        first, second = client.address.endpoints
        for endpoint in (first, second):
            for connection in [client._take(endpoint, SOON) for _ in range(3)]:
                client._give_back(endpoint, connection)
            client.call(endpoint, "/v3/kv/range", body, SOON)
        one.forget()
        two.forget()
        with pytest.raises(NoAnswer):
            client.call(first, "/v3/kv/range", body, 0.2)
        client.call(second, "/v3/kv/range", body, SOON)
        client.call(first, "/v3/kv/range", body, SOON)
        client.close()


def test_every_member_is_asked_before_a_command_gives_up(etcd):
    """One that hangs must not take the time of the others."""
    with TcpProxy(etcd.client_ports[0]) as one, TcpProxy(etcd.client_ports[0]) as two:
        hanging = f"127.0.0.1:{one.port},127.0.0.1:{two.port}"
        backend = EtcdBackend(f"etcd://{hanging},127.0.0.1:{etcd.client_ports[0]}/x")
        asked, real = [], backend._client.call

        def call(endpoint, path, body, timeout):
            asked.append((endpoint.port, timeout))
            if endpoint.port in (one.port, two.port):
                raise NoAnswer("it hangs", sent=True)
            return real(endpoint, path, body, timeout)

        backend._client.call = call
        assert backend.load("a/b", Deadline(3.0)).version == 0
        assert [port for port, _ in asked] == [one.port, two.port, etcd.client_ports[0]]
        assert all(timeout <= 1.0 for _, timeout in asked)
        backend.load("a/b", Deadline(3.0))
        assert len(asked) == 4, "the one that answered is asked first"
        backend.close()


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12),
    st.integers(0, 12),
    st.integers(0, 12),
    st.booleans(),
)
def test_a_stream_counts_as_silent_exactly_when_it_lacks_a_change(changes, probed_at, delivered_at, stalled):
    """Replay a history; the stream has delivered a prefix of it when the member is probed, and perhaps more after."""
    puts: dict[str, int] = {}
    states = [(Delivered(1, 0), 0)]
    for revision, (key, deleted) in enumerate(changes, 2):
        if deleted and key not in puts:
            continue  # etcd makes no change of it.
        puts.pop(key) if deleted else puts.update({key: revision})
        states.append((Delivered(revision, len(puts)), max(puts.values(), default=0)))
    probed_at, delivered_at = min(probed_at, len(states) - 1), min(delivered_at, len(states) - 1)
    held, newest = states[probed_at]
    then = states[min(probed_at, delivered_at)][0]
    now = then if stalled else states[max(probed_at, delivered_at)][0]
    probe = Probe(newest, held.keys, then)
    if now.revision >= held.revision:
        assert not is_silent(now, probe)
    elif newest > now.revision or held.keys != now.keys:
        assert is_silent(now, probe)


def test_all_cells_of_a_connection_share_one_watch(etcd):
    with cells.open(etcd.url(uuid.uuid4().hex)) as connection:
        before = threads_of(connection)
        opened = [connection.writer(f"x{n}", int) for n in range(20)]
        assert threads_of(connection) == before != set()
        for cell in opened:
            cell.write(1)


def test_threads_and_sockets_are_released(etcd):
    with cells.open(etcd.url(uuid.uuid4().hex)) as connection:
        connection.writer("gone", int).write(1)
        assert threads_of(connection)
    assert not threads_of(connection)


def test_the_limit_of_the_server_is_reported(etcd):
    with cells.open(etcd.url(uuid.uuid4().hex)) as connection:
        writer = connection.writer("x", bytes)
        with pytest.raises(TooLarge, match="takes 1600"):
            writer.write(bytes(1_600_000))
        connection._backend.limit = 10_000_000
        with pytest.raises(TooLarge, match="refuses the value") as caught:
            writer.write(bytes(1_600_000))
        assert len(caught.value.value) == 1_600_000
        assert writer.write(bytes(1_400_000)) > 0


def test_an_idle_connection_that_the_server_ended_is_not_used(tmp_path):
    with running_etcd(tmp_path) as cluster:
        client = EtcdClient(Address.parse(cluster.url()))
        endpoint = client.address.endpoints[0]
        client.call(endpoint, "/v3/kv/range", {"key": to_base64(b"x")}, SOON)
        cluster.kill()
        cluster.start()
        client.call(endpoint, "/v3/kv/range", {"key": to_base64(b"x")}, SOON)
        client.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """An etcd that asks for a password, over TLS."""
    with running_etcd(tmp_path_factory.mktemp("guarded"), tls=True) as cluster:
        cluster.require_password("ann", "s3cret/@:")
        yield cluster


def test_password_and_tls(guarded):
    with cells.open(guarded.url(user="ann:s3cret%2F%40%3A")) as connection:
        assert "s3cret" not in connection.url
        assert "s3cret" not in repr(connection)
        writer, reader = connection.writer("x", int), connection.reader("x", int)
        assert reader.when.reaches(writer.write(1), timeout=IN_TIME).value == 1


def test_password_and_authority_from_the_environment(guarded, monkeypatch):
    monkeypatch.setenv("ETCDCTL_USER", "ann")
    monkeypatch.setenv("ETCDCTL_PASSWORD", "s3cret/@:")
    monkeypatch.setenv("ETCDCTL_CACERT", str(guarded.tls / "ca.pem"))
    with cells.open(f"etcds://{guarded.hosts}/env") as connection:
        assert connection.writer("x", int).write(1) > 0


def test_a_token_that_ran_out_is_renewed(guarded):
    with cells.open(guarded.url(user="ann:s3cret%2F%40%3A")) as connection:
        writer = connection.writer("again", int)
        connection._backend._client._token = "ran.out"
        assert writer.write(1) > 0


def test_a_wrong_password_is_reported(guarded):
    with pytest.raises(AccessRefused, match=r"refuses the user 'ann' with this password .* check both") as caught:
        cells.open(guarded.url(user="ann:wrong"))
    assert "wrong" not in str(caught.value).replace("wrong password", "")


def test_a_missing_user_is_reported(guarded):
    with pytest.raises(AccessRefused, match="give a user and password"):
        cells.open(guarded.url())


def test_an_unneeded_user_is_reported(etcd):
    with pytest.raises(AccessRefused, match="the server asks for none; leave it out"):
        cells.open(etcd.url(user="ann:x"))


def test_an_unknown_authority_is_reported(guarded):
    with pytest.raises(AccessRefused, match=r"a certificate that is not trusted .* give its authority with \?ca=file"):
        cells.open(f"etcds://{guarded.hosts}/x", timeout=IN_TIME)


def test_plain_speech_to_a_server_that_wants_tls_is_offline(guarded):
    with pytest.raises(Offline, match="does not answer"):
        cells.open(f"etcd://{guarded.hosts}/x", timeout="0.5 s")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("etcd:///prefix", "has no host, or no valid port"),
        ("etcd://host:port/prefix", "has no host, or no valid port"),
        ("etcd://host/prefix?cacert=x", "unknown setting 'cacert'"),
        ("etcd://host/prefix?ca=/no/such/file", "cannot be read"),
    ],
)
def test_urls_that_cannot_work(url, says):
    with pytest.raises(ConfigError, match=says):
        cells.open(url)


def test_urls_are_read_in_full():
    address = Address.parse("etcd://u:p%40@a:1,[::1]:2,c/deep/prefix")
    assert address.endpoints == (("a", 1), ("::1", 2), ("c", 2379))
    assert (address.prefix, address.user, address.password) == ("deep/prefix", "u", "p@")
    assert address.shown == "etcd://a:1,[::1]:2,c/deep/prefix"
    assert Address.parse("etcd://a").prefix == ""


def test_without_a_prefix_cells_are_at_the_top(tmp_path):
    with running_etcd(tmp_path) as cluster, cells.open(cluster.url(prefix="")) as connection:
        reader = connection.reader("x", int)
        assert reader.when.reaches(connection.writer("x", int).write(1), timeout=IN_TIME).value == 1
        assert connection.names() == ["x"]


def test_a_missing_server_is_reported_in_time():
    url = f"etcd://127.0.0.1:{free_ports(1)[0]}/x"
    with pytest.raises(Offline, match=r"does not answer .*Connection refused") as caught:
        cells.open(url, timeout="0.2 s")
    assert not caught.value.maybe


def test_closing_while_a_command_waits_ends_it():
    backend = EtcdBackend(f"etcd://127.0.0.1:{free_ports(1)[0]}/x")
    ended = threading.Event()

    def wait():
        with pytest.raises(Offline):
            backend.load("a/b", Deadline(600))
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    backend.close()
    assert ended.wait(SOON)
