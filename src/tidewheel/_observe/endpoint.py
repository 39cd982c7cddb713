"""The HTTP endpoint of a process that runs a job: `/metrics`, `/health` and `/ready`."""

from __future__ import annotations

import re
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from prometheus_client.exposition import choose_encoder

from tidewheel._observe.metrics import Metrics
from tidewheel.errors import ConfigError

LOOPBACK = "127.0.0.1"

_PLACE = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):)?(\d{1,5})")
_TEXT = "text/plain; charset=utf-8"


def place(text: int | str) -> tuple[str, int]:
    """Return host and port of `9090` or `0.0.0.0:9090`; the host is the loopback interface unless one is given.

    >>> place(9090), place("0.0.0.0:9090"), place("[::]:9090")
    (('127.0.0.1', 9090), ('0.0.0.0', 9090), ('::', 9090))
    """
    found = _PLACE.fullmatch(str(text))
    if found is None or int(found[2]) > 65535:
        raise ConfigError(
            f"metrics are served at a port or at host:port, such as 9090 or 0.0.0.0:9090, not at {text!r}"
        )
    return (found[1] or LOOPBACK).strip("[]"), int(found[2])


class MetricsEndpoint:
    """Serves until the block ends. Port 0 takes a free one; `port` says which."""

    def __init__(self, metrics: Metrics, at: int | str) -> None:
        """Listen; a `ConfigError` if the port is taken or the host is none of this machine's."""
        host, port = place(at)
        try:
            self._server = _Server((host, port), _handler(metrics))
        except (OSError, OverflowError) as error:
            raise ConfigError(f"cannot serve metrics on port {port} of {host}: {error}; choose another") from error
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="tidewheel-metrics", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: one who asks and hangs up is no event of the job."""


def answer(metrics: Metrics, path: str, accept: str = "") -> tuple[HTTPStatus, str, bytes]:
    """Return the status, the type and the body for a request."""
    asked = path.partition("?")[0]
    if asked == "/metrics":
        encoder, kind = choose_encoder(accept)
        return HTTPStatus.OK, kind, encoder(metrics.registry)
    if asked in ("/health", "/ready"):
        why = metrics.alive() if asked == "/health" else metrics.ready()
        status = HTTPStatus.OK if why is None else HTTPStatus.SERVICE_UNAVAILABLE
        return status, _TEXT, f"{why or 'ok'}\n".encode()
    return HTTPStatus.NOT_FOUND, _TEXT, b"ask for /metrics, /health or /ready\n"


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            status, kind, body = answer(metrics, self.path, self.headers.get("Accept", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing: a look is no event of the job."""

    return Handler
