"""TLS with a private authority, to each kind of server; and no log-in if the server does not offer the required TLS.

etcd: tests/integration/cells/test_cells_etcd.py.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading

import psycopg
import pyarrow as pa
import pytest

from servers.mqtt_server import running_broker
from servers.nats_jwt import make_credentials
from servers.nats_server import running_nats
from servers.postgres_server import PASSWORD
from servers.stores import make_certificates
from support.waiting import SOON
from tidewheel import sinks
from tidewheel._connectors.mqtt.client import MqttConnection
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel._storage import open_store
from tidewheel.connectors import Publication, Staging
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable
from tidewheel.fleet import open_inbox

USER, SECRET = "ada", "p@ss/w,or?d#+ %"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls") / "certificates")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """Certificates of another authority."""
    return make_certificates(tmp_path_factory.mktemp("strangers") / "certificates")


def tls_of(certificates, verify):
    return (
        f'tls {{ cert_file: "{certificates}/server.pem", key_file: "{certificates}/server.key", '
        f'ca_file: "{certificates}/ca.pem", verify: {str(verify).lower()} }}\n'
    )


@pytest.fixture(scope="module")
def secure_nats(tmp_path_factory, certificates):
    with running_nats(
        tmp_path_factory.mktemp("nats"), user=f"{USER}:{SECRET}", more=tls_of(certificates, False)
    ) as server:
        yield server


@pytest.fixture(scope="module")
def strict_nats(tmp_path_factory, certificates):
    """A server that asks its clients for certificates."""
    with running_nats(tmp_path_factory.mktemp("strict"), more=tls_of(certificates, True)) as server:
        yield server


def test_nats_accepts_a_private_authority_and_a_password_with_odd_characters(secure_nats, certificates):
    url = f"{secure_nats.url('orders').replace('nats://', 'tls://')}?ca={certificates}/ca.pem"
    with open_inbox(url, 4) as inbox:
        assert inbox.n_shards == 4
        assert inbox._client._transport._io_writer.get_extra_info("ssl_object") is not None
    with NatsConnection(f"{secure_nats.server}?ca={certificates}/ca.pem") as connection:
        assert connection.client._transport._io_writer.get_extra_info("ssl_object") is not None


def test_nats_whose_authority_is_not_known_is_refused(secure_nats, strangers):
    for url in (
        secure_nats.server.replace("nats://", "tls://"),
        f"{secure_nats.server}?ca={strangers}/ca.pem",
    ):
        with pytest.raises(
            ConnectorError, match=r"a certificate that is not trusted .*; give its authority with \?ca=file"
        ):
            NatsConnection(url)


def test_nats_with_a_client_s_certificate(strict_nats, certificates):
    ca = f"{strict_nats.server}?ca={certificates}/ca.pem"
    with NatsConnection(f"{ca}&cert={certificates}/server.pem&key={certificates}/server.key") as connection:
        assert connection.client.is_connected
    with pytest.raises(ConnectorUnavailable):
        NatsConnection(ca, timeout=0.5)


@pytest.mark.parametrize("form", ["tls://{login}127.0.0.1:{port}", "nats://{login}127.0.0.1:{port}?ca={ca}/ca.pem"])
def test_nats_without_tls_gets_no_password_where_tls_was_asked_for(certificates, form):
    """A server that only listens: all that it is sent is kept."""
    received = bytearray()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def serve():
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.sendall(
                    b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"auth_required":true}\r\n'
                )
                while data := client.recv(4096):
                    received.extend(data)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        with pytest.raises(
            ConnectorError, match="is to be reached by TLS, and the server does not offer it"
        ) as refused:
            NatsConnection(form.format(login="ada:SECRET@", port=port, ca=certificates))
        assert "SECRET" not in str(refused.value)
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        serving.join()
    assert bytes(received) == b""


@pytest.mark.parametrize("how", ["credentials=", "?creds="])
def test_nats_with_a_creds_file(tmp_path, how):
    known = make_credentials(tmp_path / "ada.creds")
    with running_nats(tmp_path / "nats", more=known) as server:
        with pytest.raises(ConnectorError, match="refuses the user, the password or the token"):
            NatsConnection(server.server)
        path = str(tmp_path / "ada.creds")
        url, credentials = (server.server, path) if how == "credentials=" else (f"{server.server}?creds={path}", None)
        with NatsConnection(url, credentials=credentials) as connection:
            assert connection.client.is_connected


def test_missing_files_are_reported(certificates):
    with pytest.raises(ConfigError, match=r"there is no file /no/such\.creds with credentials for nats://localhost"):
        NatsConnection("nats://localhost?creds=/no/such.creds")
    for url in ("nats://localhost?ca=/no/such", "mqtt://localhost?ca=/no/such"):
        with pytest.raises(ConfigError, match=r"the certificates for .*://localhost cannot be read"):
            (NatsConnection if url.startswith("nats") else lambda url: MqttConnection(url, "x"))(url)
    with pytest.raises(ConfigError, match="has key= without cert="):
        NatsConnection(f"nats://localhost?key={certificates}/server.key")


def test_mqtt_with_an_authority_of_one_s_own(tmp_path, certificates, strangers):
    with running_broker(tmp_path, tls=certificates) as broker:
        broker.send("a", [b"1"])
        own = f"&cert={certificates}/server.pem&key={certificates}/server.key"
        MqttConnection(broker.url + own, "with-certificate").close()
        for url in (broker.url.partition("?")[0], broker.url.replace(str(certificates), str(strangers))):
            with pytest.raises(ConnectorError, match="shows a certificate that is not trusted"):
                MqttConnection(url, "x", timeout=SOON)


def test_mqtts_to_a_broker_without_tls_sends_nothing(certificates):
    listening = socket.create_server(("127.0.0.1", 0))
    received = bytearray()

    def serve():
        client, _ = listening.accept()
        with client:
            received.extend(client.recv(4096))

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    with pytest.raises(ConnectorUnavailable):
        MqttConnection(
            f"mqtts://ada:SECRET@127.0.0.1:{listening.getsockname()[1]}?ca={certificates}/ca.pem", "x", timeout=2
        )
    serving.join()
    listening.close()
    assert b"SECRET" not in received
    assert b"ada" not in received


@pytest.fixture
def secure_port(postgres, certificates):
    """A way to the server by TLS, which its own build does not speak: it answers the request for TLS, and passes bytes on."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(client):
        assert client.recv(8) == struct.pack("!ii", 8, 80877103)
        client.sendall(b"S")
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(client)
            secured = stack.enter_context(context.wrap_socket(client, server_side=True))
            server = stack.enter_context(socket.create_connection(("127.0.0.1", postgres.port)))
            back = threading.Thread(target=pass_on, args=(server, secured), daemon=True)
            back.start()
            pass_on(secured, server)
            server.shutdown(socket.SHUT_RDWR)
            back.join()

    def accept():
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            served.append(threading.Thread(target=serve, args=(client,), daemon=True))
            served[-1].start()

    served = [threading.Thread(target=accept, daemon=True)]
    served[0].start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    for thread in served:
        thread.join()


def pass_on(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)


def test_postgres_with_an_authority_of_one_s_own(postgres, secure_port, certificates, strangers, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    server = postgres.dsn.replace(f"port={postgres.port}", f"port={secure_port}")
    dsn = f"{server} sslmode=verify-full sslrootcert={certificates}/ca.pem"
    with psycopg.connect(dsn) as connection:
        assert connection.pgconn.ssl_in_use
    store = open_store("memory:tls-postgres")
    sink = sinks.postgres(dsn, "secured", create=True)
    sink.start("j")
    part = sink.open(Staging(store, "j", "out", 1, "run-0-0"))
    part.write(pa.RecordBatch.from_pydict({"x": [1, 2]}))
    sink.publish(Publication(store, "j", "out", 1, (part.prepare(),), None))
    assert postgres.query("SELECT count(*) FROM secured") == [(2,)]
    wrong = sinks.postgres(f"{server} sslmode=verify-full sslrootcert={strangers}/ca.pem", "secured", patience="1 s")
    with pytest.raises(ConfigError, match=r"refuses us: .*certificate"):
        wrong.start("j")
