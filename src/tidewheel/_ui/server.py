"""Serving the page: for `tidewheel ui`, until it is stopped, and beside a run, in a thread of its own."""

from __future__ import annotations

import socket
import threading
from typing import Self

import uvicorn

from tidewheel._core.closing import Closing
from tidewheel._core.http_endpoint import http_url
from tidewheel._ui.app import make_app
from tidewheel._ui.guard import Guard
from tidewheel._ui.site import Site
from tidewheel.errors import ConfigError

DEFAULT_PORT = 7080


class PageServer(Closing):
    """Serves a page until the block ends, or `wait` returns; `port` says where.

    Port 0 takes a free one; None the usual one, or a free one if that is taken.
    """

    def __init__(self, site: Site, guard: Guard, host: str = "127.0.0.1", port: int | None = None) -> None:
        """Listen; a `ConfigError` if that cannot be done."""
        try:
            self._socket = _listening(host, DEFAULT_PORT if port is None else port)
        except ConfigError:
            if port is not None:
                raise
            self._socket = _listening(host, 0)
        self.port = int(self._socket.getsockname()[1])
        self._host, self._site, self._guard = host, site, guard
        config = uvicorn.Config(
            make_app(site, guard),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            # Readers of events stay until they are told to go.
            timeout_graceful_shutdown=1,
        )
        # In a thread of its own it leaves signals to the program.
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="tidewheel-page", daemon=True)

    @property
    def url(self) -> str:
        """The address of the page, with the token where one is needed."""
        needed = self._guard.changes or not self._guard.open_to_read
        return f"{http_url(self._host, self.port)}/" + (f"#token={self._guard.token}" if needed else "")

    def wait(self) -> None:
        """Wait until the server ends."""
        self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self._site.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def _listening(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Who asks before the server turns is answered when it does.
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(f"the page cannot be served at {host}, port {port}: {error}; choose another") from error
    return listener
