"""Real servers for tests: SeaweedFS (S3) and etcd, on free loopback ports, each stopped by its own pid.

Use the context managers directly, or the fixtures, which share one server among the tests of a session. A test that kills a
server starts its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import ipaddress
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.etcd_binary import etcd_binary
from support.waiting import eventually

ACCESS_KEY, SECRET_KEY = "tidewheel", "tidewheel-secret"
_READY_S = 180


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below the range that the system picks its own from.

    Processes that run tests at the same time draw from ranges of their own: a port is bound a while after it was found, and
    a server that was killed comes back to its own.
    """
    share = 2_000
    first = 15_000 + share * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8)
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.SystemRandom().sample(range(first, first + share), share):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("no free ports on loopback")


def _die_with_the_test_run() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _start(
    command: list[str], log: Path, env: dict[str, str] | None = None, user: int | None = None
) -> subprocess.Popen[bytes]:
    # The system counts the death of the thread that starts a process: a test's own thread ends before the run does.
    in_main = threading.current_thread() is threading.main_thread()
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            user=user,
            preexec_fn=_die_with_the_test_run if in_main else None,
        )


def _wait(ready, process: subprocess.Popen[bytes], log: Path, seconds: float = _READY_S) -> None:
    """Ask until a server is ready; fail with its log if it ends or takes too long."""
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args[0]} did not get ready:\n{log.read_text()[-4000:]}")
        time.sleep(0.02)


class SeaweedFS:
    """An S3 server with one identity. Buckets are made by the first write."""

    def __init__(self, folder: Path, address: str = "127.0.0.1", inside: tuple[str, ...] = ()) -> None:
        """Take its folder and address; `inside` is the beginning of a command that runs on another host."""
        self.folder, self._address, self._inside = folder, address, inside
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(
            json.dumps(
                {
                    "identities": [
                        {
                            "name": "tests",
                            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                        }
                    ]
                }
            )
        )
        self._ports = free_ports(8)
        self._log = folder / "weed.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self._address}:{self._ports[0]}"

    def url(self, prefix: str = "", bucket: str = "tests") -> str:
        """Return the URL of a place in a bucket, as `storage.open` takes it."""
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region=us-east-1"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        s3, s3_grpc, filer, filer_grpc, master, master_grpc, volume, volume_grpc = self._ports
        flags = {
            "ip": self._address,
            "ip.bind": self._address,
            "dir": self.folder / "data",
            "filer": "true",
            "filer.port": filer,
            "filer.port.grpc": filer_grpc,
            "filer.localSocket": self.folder / "filer.sock",
            "s3": "true",
            "s3.config": self.folder / "s3.json",
            "s3.port": s3,
            "s3.port.grpc": s3_grpc,
            "s3.localSocket": self.folder / "s3.sock",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.iam": "false",
            "master.port": master,
            "master.port.grpc": master_grpc,
            "master.electionTimeout": "200ms",
            "master.heartbeatInterval": "50ms",
            "master.volumeSizeLimitMB": 64,
            "master.telemetry": "false",
            "volume.port": volume,
            "volume.port.grpc": volume_grpc,
            "volume.max": 2000,
        }
        self._process = _start(
            [*self._inside, str(Path(sys.executable).parent / "weed"), "-logtostderr=true", "server"]
            + [f"-{name}={value}" for name, value in flags.items()],
            self._log,
            # One volume per collection is enough, and growing seven takes seconds.
            {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"},
        )
        _wait(self._ready, self._process, self._log)

    def _ready(self) -> bool:
        """Write one object: only then are the filer, the volumes and the S3 door all there."""
        import obstore
        from obstore.store import S3Store

        store = S3Store(
            "tests",
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 0},
        )
        try:
            obstore.put(store, "ready", b"ready")
            return bool(obstore.get(store, "ready").bytes())
        except Exception:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for port in self._ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


class Etcd:
    """An etcd cluster of one or more members, with or without TLS."""

    def __init__(self, folder: Path, members: int = 1, tls: bool = False, election_ms: int = 500) -> None:
        self.folder = folder
        self.tls = make_certificates(folder / "tls") if tls else None
        self._scheme = "https" if tls else "http"
        self._election_ms = election_ms
        ports = free_ports(2 * members)
        self.client_ports, self._peer_ports = ports[:members], ports[members:]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * members

    @property
    def members(self) -> range:
        return range(len(self.client_ports))

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.client_ports)

    def url(self, prefix: str = "tests", user: str = "") -> str:
        """Return the URL as `cells.open` takes it."""
        query = f"?ca={self.tls / 'ca.pem'}" if self.tls else ""
        return f"etcd://{user + '@' if user else ''}{self.hosts}/{prefix}{query}"

    def start(self, *members: int) -> None:
        """Start the given members, or all, and wait until each serves."""
        chosen = members or tuple(self.members)
        for member in chosen:
            self._processes[member] = _start(self._command(member), self._log(member))
        for member in chosen:
            _wait(lambda member=member: self._healthy(member), self._processes[member], self._log(member))

    def kill(self, *members: int) -> None:
        """Kill the given members, or all, without notice."""
        for member in members or tuple(self.members):
            process = self._processes[member]
            if process is not None:
                process.kill()
                process.wait()
                self._processes[member] = None

    def leader(self) -> int:
        """Return the number of the member that leads; while none does, wait until one is chosen."""
        leaders: list[int] = []

        def is_led() -> bool:
            leaders.extend(filter(self._leads, self.members))
            return bool(leaders)

        eventually(is_led, "the election of a leader")
        return leaders[0]

    def _leads(self, member: int) -> bool:
        if self._processes[member] is None:
            return False
        try:
            status = self.post(member, "/v3/maintenance/status", {})
        except OSError:
            return False
        return status.get("leader") == status["header"]["member_id"]

    def post(self, member: int, path: str, body: dict, headers: dict[str, str] | None = None) -> dict:
        """Send a request to etcd's own HTTP door."""
        request = urllib.request.Request(
            f"{self._scheme}://127.0.0.1:{self.client_ports[member]}{path}",
            json.dumps(body).encode(),
            headers or {},
        )
        with urllib.request.urlopen(request, timeout=30, context=self._context()) as answer:
            return json.load(answer)

    def require_password(self, user: str, password: str) -> None:
        """Make a user who may do everything, and turn authentication on."""
        for path, body in (
            ("/v3/auth/user/add", {"name": "root", "password": password}),
            ("/v3/auth/user/grant", {"user": "root", "role": "root"}),
            ("/v3/auth/user/add", {"name": user, "password": password}),
            ("/v3/auth/user/grant", {"user": user, "role": "root"}),
            ("/v3/auth/enable", {}),
        ):
            self.post(0, path, body)

    def _healthy(self, member: int) -> bool:
        request = f"{self._scheme}://127.0.0.1:{self.client_ports[member]}/health"
        try:
            with urllib.request.urlopen(request, timeout=2, context=self._context()) as answer:
                return json.load(answer)["health"] == "true"
        except OSError:
            return False

    def _context(self):
        import ssl

        return ssl.create_default_context(cafile=str(self.tls / "ca.pem")) if self.tls else None

    def _log(self, member: int) -> Path:
        return self.folder / f"etcd-{member}.log"

    def _command(self, member: int) -> list[str]:
        client = f"{self._scheme}://127.0.0.1:{self.client_ports[member]}"
        peers = [f"http://127.0.0.1:{port}" for port in self._peer_ports]
        flags = {
            "name": f"m{member}",
            "data-dir": self.folder / f"m{member}",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peers[member],
            "initial-advertise-peer-urls": peers[member],
            "initial-cluster": ",".join(f"m{n}={url}" for n, url in enumerate(peers)),
            "initial-cluster-state": "new",
            "heartbeat-interval": max(10, self._election_ms // 10),
            "election-timeout": self._election_ms,
            "log-level": "warn",
        }
        if self.tls:
            flags |= {"cert-file": self.tls / "server.pem", "key-file": self.tls / "server.key"}
        return [str(etcd_binary()), *(f"--{name}={value}" for name, value in flags.items())]


def make_certificates(folder: Path) -> Path:
    """Write an authority and a certificate for 127.0.0.1, good for servers and clients: ca.pem, server.pem, server.key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    folder.mkdir(parents=True)
    now = datetime.datetime.now(datetime.UTC)
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def certificate(subject: str, key, *extensions) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("tidewheel tests"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(authority_key, hashes.SHA256())

    authority = certificate(
        "tidewheel tests",
        authority_key,
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), False),
    )
    server = certificate(
        "127.0.0.1",
        server_key,
        (x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False),
    )
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(authority.public_bytes(pem))
    (folder / "server.pem").write_bytes(server.public_bytes(pem))
    (folder / "server.key").write_bytes(
        server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder


@contextlib.contextmanager
def running_seaweedfs(folder: Path, address: str = "127.0.0.1", inside: tuple[str, ...] = ()) -> Iterator[SeaweedFS]:
    """Run an S3 server for a while; its credentials are in this process's environment meanwhile."""
    server = SeaweedFS(folder, address, inside)
    before = {name: os.environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def running_etcd(folder: Path, members: int = 1, tls: bool = False, election_ms: int = 500) -> Iterator[Etcd]:
    """Run an etcd cluster for a while."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Etcd(folder, members, tls, election_ms)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """One S3 server for the whole session; keep apart by prefix, and do not kill it."""
    with running_seaweedfs(tmp_path_factory.mktemp("weed") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One single-member etcd for the whole session; keep apart by prefix, and do not kill it."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster
