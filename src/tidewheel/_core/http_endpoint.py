"""The HTTP server of metrics, look-ups and the page, in threads of a process that does other work.

It limits what clients can use of that process: the number of connections, a deadline for each request, and the size of
headers and bodies. Each connection serves one request.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tidewheel._core.closing import Closing
from tidewheel._core.http_guard import Guard
from tidewheel._core.logs import logger
from tidewheel._core.loopback_peer import peer_user
from tidewheel.errors import ConfigError

_LOG = logger(__name__)

LOOPBACK = "127.0.0.1"
CONNECTIONS: Final = 32
"""The maximum number of open connections; more are answered with status 503."""
REQUEST_S: Final = 10.0
"""The seconds within which a request must be complete and its answer started."""
_LARGEST_BODY: Final = 1 << 20
_MOST_ARGUMENTS: Final = 100

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def http_url(host: str, port: int) -> str:
    """Return the address of a server, without a path; an IPv6 host is in brackets."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Request(NamedTuple):
    """A request that the guard has accepted."""

    method: str
    path: str
    """Percent-decoded."""
    arguments: dict[str, str] = {}  # noqa: RUF012
    headers: dict[str, str] = {}  # noqa: RUF012
    """Headers by lower-case names."""
    body: bytes = b""
    raw_path: str = ""
    """The requested path, without query arguments."""
    user: int | None = None
    """The user id of the client, if it is on this machine and known; otherwise None."""


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    kind: str
    """The content type."""
    body: bytes | Iterator[bytes]
    """The whole body, or its parts as they become available: then the answer has no deadline."""


class HttpEndpoint(Closing):
    """Serves until the block ends. Port 0 picks a free port; `port` is the actual one."""

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[Request], Answer],
        guard: Guard,
        what: str,
        *,
        tell: bool = True,
        request_s: float = REQUEST_S,
    ) -> None:
        """Start to listen; raise `ConfigError` if the port is taken or the host is not an address of this machine.

        `answer` is called with each accepted request, in its own thread; `what` describes the server in messages.
        `tell`: log the address if the port was left open. `request_s`: the deadline of a request, in seconds.
        """
        try:
            self._server = _Server((host, port), answer, guard, request_s)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"cannot serve {what} on port {port} of {host}: {error}; choose another port") from error
        self.host, self.port = host, int(self._server.server_address[1])
        if port == 0 and tell:
            # The log is the only place with the address, so use a level that is always shown.
            _LOG.warning("%s: at %s", what, self.url)
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"tidewheel-{what}", daemon=True)

    @property
    def url(self) -> str:
        """The address of the server."""
        return http_url(self.host, self.port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def wait(self) -> None:
        """Wait until the server ends."""
        self._thread.join()

    def close(self) -> None:
        """Stop the server."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(
        self, address: tuple[str, int], answer: Callable[[Request], Answer], guard: Guard, request_s: float
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.answer, self.guard, self._request_s = answer, guard, request_s
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._deadlines: dict[Any, float] = {}
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread, unless there are too many."""
        if not self._free.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(_FULL)
            self.shutdown_request(request)
            return
        self._deadlines[request] = time.monotonic() + self._request_s
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.lift_deadline(request)
            self._free.release()

    def lift_deadline(self, request: Any) -> None:
        """Remove the deadline of a connection whose answer comes in parts."""
        self._deadlines.pop(request, None)

    def service_actions(self) -> None:
        """Close the connections whose deadline has passed. Called by the server twice per second."""
        now = time.monotonic()
        for request, deadline in list(self._deadlines.items()):
            if deadline < now:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client that hangs up is not an event of the job."""


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        self.close_connection = True
        answer = self._answer()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if isinstance(answer.body, bytes):
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if isinstance(answer.body, bytes):
            self.wfile.write(answer.body)
            return
        self.server.lift_deadline(self.connection)
        with contextlib.closing(answer.body) as parts:  # type: ignore[type-var]
            for part in parts:
                self.wfile.write(part)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _serve

    def _answer(self) -> Answer:
        headers = {name.lower(): value for name, value in self.headers.items()}
        parts = urlsplit(f"//-{self.path}" if self.path.startswith("/") else self.path)
        path = unquote(parts.path)
        refused = self.server.guard.refusal(self.command, path, headers)
        if refused is not None:
            return failure(*refused)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or "transfer-encoding" in headers:
            return failure(HTTPStatus.LENGTH_REQUIRED, "the request must say how long its body is")
        if len(length) > 9 or int(length) > _LARGEST_BODY:
            return failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too large")
        try:
            arguments = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_MOST_ARGUMENTS))
        except ValueError:
            return failure(HTTPStatus.BAD_REQUEST, "the request has too many arguments")
        body = self.rfile.read(int(length))
        user = peer_user(self.client_address, self.connection.getsockname()) if self._is_local() else None
        return self.server.answer(Request(self.command, path, arguments, headers, body, parts.path, user))

    def _is_local(self) -> bool:
        return bool(self.client_address[0].startswith("127."))

    def version_string(self) -> str:
        return "tidewheel"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a request is not an event of the job."""


def failure(status: int, text: str) -> Answer:
    """Return the answer to a failed request: JSON with the field `error`."""
    return Answer(status, "application/json", msgspec.json.encode({"error": text}))
