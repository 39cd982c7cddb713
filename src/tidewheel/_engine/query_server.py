"""A small HTTP endpoint on the loopback interface that answers look-ups: `GET /OPERATOR/KEY`."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from tidewheel._checkpoint.tools.text import key_candidates, shown
from tidewheel._engine.lookup import Lookup
from tidewheel.errors import ConfigError, TidewheelError

_HOST = "127.0.0.1"


class Endpoint:
    """Serves until the block ends. Port 0 takes a free one; `port` says which."""

    def __init__(self, lookup: Lookup, port: int) -> None:
        """Listen on the port of 127.0.0.1; a `ConfigError` if it is taken."""
        try:
            self._server = ThreadingHTTPServer((_HOST, port), _handler(lookup))
        except (OSError, OverflowError) as error:
            raise ConfigError(f"cannot serve on port {port} of {_HOST}: {error}; choose another port") from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="tidewheel-endpoint", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{_HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def answer(lookup: Lookup, path: str) -> tuple[HTTPStatus, str]:
    """Return the status and the JSON text for a request's path."""
    parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/", 1)]
    if len(parts) != 2 or not all(parts):
        return HTTPStatus.BAD_REQUEST, shown({"error": "ask for /OPERATOR/KEY; a KEY is text, or JSON such as 7"})
    operator, key = parts
    try:
        # A number may be a number or text: whichever has state is meant.
        answers = [lookup.get(operator, candidate) for candidate in key_candidates(key)]
    except TidewheelError as error:
        return HTTPStatus.NOT_FOUND, shown({"error": str(error)})
    chosen = next((each for each in answers if each.found), answers[0])
    return (HTTPStatus.OK if chosen.found else HTTPStatus.NOT_FOUND), shown(chosen)


def _handler(lookup: Lookup) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answer(lookup, self.path)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing: a look-up is no event of the job."""

    return Handler
