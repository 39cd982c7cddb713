"""Serve the page: for `tidewheel ui` until it is stopped, or during a run."""

from __future__ import annotations

from tidewheel._core.http_endpoint import HttpEndpoint, http_url
from tidewheel._core.http_guard import Guard
from tidewheel._ui.app import PageApp
from tidewheel._ui.site import Site
from tidewheel.errors import ConfigError

DEFAULT_PORT = 7080


class PageServer(HttpEndpoint):
    """Serves a page until the block ends, or `wait` returns, on `port`.

    Port 0 picks a free port; None the default port, or a free one if that is taken.
    """

    def __init__(self, site: Site, guard: Guard, host: str = "127.0.0.1", port: int | None = None) -> None:
        """Start to listen; raise `ConfigError` if that fails."""
        self._site, self._guard = site, guard
        self._app = PageApp(site, guard)
        try:
            super().__init__(host, DEFAULT_PORT if port is None else port, self._app, guard, "the page", tell=False)
        except ConfigError:
            if port is not None:
                raise
            super().__init__(host, 0, self._app, guard, "the page", tell=False)

    @property
    def url(self) -> str:
        """The address of the page, including the token."""
        return f"{http_url(self.host, self.port)}/#token={self._guard.token}"

    def close(self) -> None:
        """Stop the server."""
        self._app.close()
        super().close()
        self._site.close()
