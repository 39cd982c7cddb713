"""A small HTTP server in a thread of a process that does something else: it answers GET."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tidewheel._core.closing import Closing
from tidewheel._core.logs import logger
from tidewheel.errors import ConfigError

_LOG = logger(__name__)

LOOPBACK = "127.0.0.1"


def http_url(host: str, port: int) -> str:
    """Return the address of a server, without a path; an IPv6 host is in brackets there."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Answer(NamedTuple):
    """What is answered to a request."""

    status: HTTPStatus
    kind: str
    """The type of the content."""
    body: bytes


class HttpEndpoint(Closing):
    """Serves until the block ends. Port 0 takes a free one; `port` says which, and so does the log."""

    def __init__(self, host: str, port: int, answer: Callable[[str, str], Answer], what: str) -> None:
        """Listen; a `ConfigError` if the port is taken or the host is none of this machine's.

        `answer` gets the path and the header `Accept` of each request, in threads of their own; `what` names for people what
        is served.
        """
        try:
            self._server = _Server((host, port), _handler(answer))
        except (OSError, OverflowError) as error:
            raise ConfigError(f"cannot serve {what} on port {port} of {host}: {error}; choose another port") from error
        self.host, self.port = host, int(self._server.server_address[1])
        if port == 0:
            # Nobody else knows where it is; told as loudly as what must not be missed.
            _LOG.warning("%s: at %s", what, self.url)
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"tidewheel-{what}", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return http_url(self.host, self.port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: one who asks and hangs up is no event of the job."""


def _handler(answer: Callable[[str, str], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            status, kind, body = answer(self.path, self.headers.get("Accept", ""))
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
