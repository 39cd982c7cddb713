"""A small client of etcd's HTTP gateway (enabled by default since etcd 3.4), using only the standard library.

Unlike the usual packages, it supports several endpoints and passwords, and reports whether a failed request may have
been executed. One request is one attempt at one endpoint; the caller, who knows what can be repeated, does the retries.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from tidewheel._cells.errors import AccessRefused
from tidewheel._core import tls
from tidewheel._core.urls import Url

_PERMISSION_DENIED = 7
_NOT_CARRIED_OUT = {3, 8, 9, 11, 16}
"""gRPC codes of rejected requests: invalid, too large, failed precondition, compacted, token."""
_CONNECT_S = 1.0
_PORT = 2379


class NoAnswer(Exception):
    """An endpoint gave no answer, or only reported that the cluster is unhealthy. `sent`: the request may have been executed."""

    def __init__(self, text: str, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


class Refusal(Exception):
    """The cluster understood the request and rejected it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def too_large(self) -> bool:
        """Whether the request exceeded the server's limit."""
        return "too large" in str(self) or "larger than max" in str(self)


class Endpoint(NamedTuple):
    """One member of the cluster."""

    host: str
    port: int


class Address(NamedTuple):
    """The parts of a URL: `etcd://[user[:password]@]host:port,host:port/prefix[?ca=..&cert=..&key=..]`.

    `etcds:` is TLS with the system's authorities. Defaults come from the environment variables of `etcdctl`:
    ETCDCTL_USER, ETCDCTL_PASSWORD, ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY.
    """

    endpoints: tuple[Endpoint, ...]
    prefix: str
    user: str
    password: str
    tls: ssl.SSLContext | None
    shown: str

    @classmethod
    def parse(cls, url: str | Url) -> Address:
        """Parse a URL; raise if it is invalid."""
        server = Url(url).server(
            ("etcd", "etcds"), "the members of an etcd, as in etcd://host:2379,host:2379/prefix", tls.SETTINGS
        )
        user, password = server.user, server.password
        if not user:
            user, _, password = (unquote(part) for part in os.environ.get("ETCDCTL_USER", "").partition(":"))
        variables = {"ca": "ETCDCTL_CACERT", "cert": "ETCDCTL_CERT", "key": "ETCDCTL_KEY"}
        files = {name: server.settings.get(name) or os.environ.get(variable) for name, variable in variables.items()}
        secure = server.scheme == "etcds" or files["ca"] or files["cert"]
        return cls(
            tuple(Endpoint(host.name, host.port or _PORT) for host in server.hosts),
            server.path,
            user,
            password or os.environ.get("ETCDCTL_PASSWORD", ""),
            tls.tls_context(server.shown, **files) if secure else None,
            server.shown,
        )

    def __repr__(self) -> str:
        return f"Address({self.shown})"


class EtcdClient:
    """Sends requests to the members of one cluster. Safe to use from several threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._idle: dict[Endpoint, list[http.client.HTTPConnection]] = {e: [] for e in address.endpoints}
        self._token = ""
        self._closed = False

    def call(self, endpoint: Endpoint, path: str, body: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send one request and return its answer; raise `NoAnswer`, `Refusal` or `AccessRefused` if there is none."""
        try:
            return self._authorized(endpoint, path, body, timeout)
        except Refusal as refusal:
            if not (self.address.user and _stale_token(refusal)):
                raise
        # A request that was rejected for its token was not executed, so a retry with a new token counts as the first
        # attempt.
        self._token = ""
        return self._authorized(endpoint, path, body, timeout)

    def stream(self, endpoint: Endpoint, path: str, body: dict[str, Any]) -> Stream:
        """Start a request with a stream of answers."""
        self._log_in(endpoint, _CONNECT_S)
        connection = self._connect(endpoint, _CONNECT_S)
        try:
            response = self._send(connection, path, body)
            connection.sock.settimeout(None)
        except BaseException:
            connection.close()
            raise
        return Stream(connection, response)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle = {endpoint: [] for endpoint in self._idle}
        for connection in idle:
            connection.close()

    def _authorized(self, endpoint: Endpoint, path: str, body: dict[str, Any], timeout: float) -> dict[str, Any]:
        self._log_in(endpoint, timeout)
        return self._post(endpoint, path, body, timeout)

    def _log_in(self, endpoint: Endpoint, timeout: float) -> None:
        if not self.address.user or self._token:
            return
        login = {"name": self.address.user, "password": self.address.password}
        try:
            self._token = self._post(endpoint, "/v3/auth/authenticate", login, timeout)["token"]
        except Refusal as refusal:
            if "not enabled" in str(refusal):
                raise AccessRefused(
                    f"{self.address.shown}: a user was given, but the server asks for none; leave it out"
                ) from None
            raise AccessRefused(
                f"{self.address.shown} refuses the user {self.address.user!r} with this password ({refusal}); check both"
            ) from None
        except NoAnswer as error:
            raise NoAnswer(str(error), sent=False) from None

    def _post(self, endpoint: Endpoint, path: str, body: dict[str, Any], timeout: float) -> dict[str, Any]:
        connection = self._take(endpoint, timeout)
        try:
            response = self._send(connection, path, body)
            answer: dict[str, Any] = json.loads(self._read(response))
        except BaseException as error:
            connection.close()
            if isinstance(error, NoAnswer):
                # The cause of this failure or silence has probably also broken the idle connections of all members.
                self._close_idle()
            raise
        self._give_back(endpoint, connection)
        return answer

    def _send(
        self, connection: http.client.HTTPConnection, path: str, body: dict[str, Any]
    ) -> http.client.HTTPResponse:
        headers = {"Authorization": self._token} if self._token else {}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(
                f"{connection.host}:{connection.port}: {error or type(error).__name__}", sent=True
            ) from error
        if response.status != 200:
            raise self._failure(connection, response)
        return response

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(str(error), sent=True) from error

    def _failure(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Exception:
        """Return an error that says whether the request was certainly not executed."""
        body = self._read(response)
        try:
            answer = json.loads(body)
            code, text = int(answer.get("code", 0)), str(answer.get("message") or answer.get("error"))
        except (ValueError, AttributeError):
            code, text = 0, body[:200].decode(errors="replace")
        if code == _PERMISSION_DENIED or "user name is empty" in text:
            return AccessRefused(
                f"{self.address.shown} does not allow this to {self.address.user or 'users without a name'} ({text}); "
                "give a user and password, or grant the role"
            )
        if code in _NOT_CARRIED_OUT:
            return Refusal(code, text)
        return NoAnswer(f"{connection.host}:{connection.port} says: {text}", sent=True)

    def _take(self, endpoint: Endpoint, timeout: float) -> http.client.HTTPConnection:
        """Return a connection. Reuse an idle one only if the server has not closed it."""
        while True:
            with self._lock:
                idle = self._idle[endpoint]
                connection = idle.pop() if idle else None
            if connection is None:
                return self._connect(endpoint, timeout)
            readable = select.poll()
            readable.register(connection.sock, select.POLLIN)
            if readable.poll(0):
                connection.close()
                continue
            connection.sock.settimeout(timeout)
            return connection

    def _connect(self, endpoint: Endpoint, timeout: float) -> http.client.HTTPConnection:
        connection = (
            http.client.HTTPConnection(*endpoint, timeout=min(timeout, _CONNECT_S))
            if self.address.tls is None
            else http.client.HTTPSConnection(*endpoint, timeout=min(timeout, _CONNECT_S), context=self.address.tls)
        )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise AccessRefused(
                f"{self.address.shown} shows a certificate that is not trusted ({error.verify_message}); "
                "give its authority with ?ca=file"
            ) from None
        except OSError as error:
            raise NoAnswer(f"{endpoint.host}:{endpoint.port}: {error}", sent=False) from error
        connection.sock.settimeout(timeout)
        _keep_alive(connection.sock)
        return connection

    def _give_back(self, endpoint: Endpoint, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._closed and connection.sock is not None:
                self._idle[endpoint].append(connection)
                return
        connection.close()


class Stream:
    """A stream of answers, one JSON object per line."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._socket = connection.sock
        self._response = response

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                line = self._response.readline()
            except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
                raise NoAnswer(str(error) or type(error).__name__, sent=False) from error
            if not line:
                raise NoAnswer("the stream of changes ended", sent=False)
            if line.strip():
                answer = json.loads(line)
                if "result" not in answer:
                    raise NoAnswer(str(answer.get("error", answer)), sent=False)
                yield answer["result"]

    def interrupt(self) -> None:
        """End the stream from another thread; a plain close would leave the reader waiting."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._response.close()
        self._connection.close()


def _keep_alive(sock: socket.socket) -> None:
    """Enable TCP keep-alive, so that a NAT keeps an idle connection and a dead one is noticed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _stale_token(refusal: Refusal) -> bool:
    return "invalid auth token" in str(refusal) or "revision of auth store is old" in str(refusal)


def to_base64(data: bytes) -> str:
    """Encode bytes for etcd's HTTP gateway."""
    return base64.b64encode(data).decode()


def from_base64(text: str) -> bytes:
    """Decode bytes from etcd's HTTP gateway."""
    return base64.b64decode(text)
