"""A connection to a NATS server or cluster for synchronous code: the client's event loop runs in a separate thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidewheel._core import tls
from tidewheel._core.closing import Closing
from tidewheel._core.urls import ServerUrl, Url
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable

T = TypeVar("T")

_BETWEEN_TRIES_S = 0.1
_LEAST_TO_CONNECT_S = 2.0
_PORT = 4222


class NatsConnection(Closing):
    """A connection to the servers at a URL, as `nats_server` reads it. `credentials` is the path of a `.creds` file.

    `timeout` is the limit for each request, in seconds. A request that fails raises `ConnectorUnavailable` if a retry
    may succeed, and another `ConnectorError` otherwise. `url` is the URL without user and password.
    """

    def __init__(self, url: str | Url | ServerUrl, *, credentials: str | None = None, timeout: float = 5.0) -> None:
        server = url if isinstance(url, ServerUrl) else nats_server(url)
        self.url = server.shown
        self.timeout = timeout
        self._last_error = ""
        self._refusal = ""
        self._refused = asyncio.Event()
        options = _options(server, credentials)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"nats {self.url}", daemon=True)
        self._thread.start()
        self.client: Any = None
        try:
            self.client = self.call(self._connect(options), max(timeout, _LEAST_TO_CONNECT_S))
            self.jetstream = self.client.jetstream(timeout=timeout)
        except BaseException:
            self.close()
            raise

    def call(self, coroutine: Coroutine[Any, Any, T], limit: float | None = None) -> T:
        """Run a coroutine of a few requests in the event loop, and return its result."""
        if self._loop.is_closed():
            coroutine.close()
            raise ConnectorError(f"the connection to {self.url} was closed")
        limited = self._in_time(coroutine, limit or 4 * self.timeout)
        return asyncio.run_coroutine_threadsafe(limited, self._loop).result()

    def call_until(self, deadline: float, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `make` returns; retry while the server does not answer, until a time of
        `time.monotonic`.
        """
        while True:
            try:
                return self.call(make())
            except ConnectorUnavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_BETWEEN_TRIES_S)

    def close(self) -> None:
        """Close the connection, and end the thread."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __repr__(self) -> str:
        return f"NatsConnection({self.url!r})"

    async def _connect(self, options: dict[str, Any]) -> Any:
        import nats.aio.client

        from tidewheel._connectors.nats.secure import SecureClient

        # Set before connecting, so that `close` also closes a connection that was only half made.
        client: Any = SecureClient() if "tls" in options else nats.aio.client.Client()
        self.client = client
        connecting = asyncio.ensure_future(
            client.connect(
                connect_timeout=2,
                reconnect_time_wait=0.1,
                max_reconnect_attempts=-1,
                error_cb=self._note,
                **options,
            )
        )
        # The client would retry with the same password, or without TLS.
        refused = asyncio.ensure_future(self._refused.wait())
        await asyncio.wait([connecting, refused], return_when=asyncio.FIRST_COMPLETED)
        refused.cancel()
        if not connecting.done():
            connecting.cancel()
            raise ConnectorError(self._refusal)
        connecting.result()
        return client

    async def _note(self, error: Exception) -> None:
        """Keep the error of the server for the request that will fail because of it."""
        from nats.errors import SecureConnRequiredError

        self._last_error = str(error)
        if isinstance(error, SecureConnRequiredError):
            self._refusal = (
                f"{self.url} is to be reached by TLS, and the server does not offer it; no user or password was "
                "sent. Check the "
                "server, or write nats: and leave ca= and cert= out"
            )
        elif isinstance(error, ssl.SSLCertVerificationError):
            untrusted = f"a certificate that is not trusted ({error.verify_message})"
            self._refusal = f"{self.url} shows {untrusted}; give its authority with ?ca=file"
        elif "authorization violation" in self._last_error.lower():
            self._refusal = f"{self.url} refuses the user, the password or the token; check the URL and the credentials"
        if self._refusal:
            self._refused.set()

    async def _shut_down(self) -> None:
        """Close the connection, and cancel the tasks that it leaves running."""
        if self.client is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.client.close(), self.timeout)
        # In a loop: a task in `asyncio.wait_for` can miss a cancellation that arrives as its wait ends.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            ended, _ = await asyncio.wait(others, timeout=_BETWEEN_TRIES_S)
            await asyncio.gather(*ended, return_exceptions=True)

    async def _in_time(self, coroutine: Coroutine[Any, Any, T], limit: float) -> T:
        import nats.errors
        import nats.js.errors

        try:
            return await asyncio.wait_for(coroutine, limit)
        except nats.errors.AuthorizationError as error:
            raise ConnectorError(
                f"{self.url} refuses the user, the password or the token; check the URL and the credentials"
            ) from error
        except (TimeoutError, OSError, nats.errors.Error) as error:
            last = f"; the last it said was: {self._last_error}" if self._last_error else ""
            raise ConnectorUnavailable(f"{self.url} does not answer ({type(error).__name__} {error}{last})") from error


def nats_server(url: str | Url, *settings: str) -> ServerUrl:
    """Parse the URL of a NATS server or cluster, `nats://user:password@host:4222,host:4222`, or raise a `ConfigError`.

    A user without a password is a token. With `tls:`, `?ca=file` or `?cert=file&key=file`, the client uses TLS or does
    not connect; `?creds=file` is a file with credentials. `settings` are further allowed names.
    """
    return Url(url).server(
        ("nats", "tls"), "a NATS server, as in nats://localhost:4222", (*tls.SETTINGS, "creds", *settings)
    )


def _options(server: ServerUrl, credentials: str | None) -> dict[str, Any]:
    """Return the options of the client. User and password are decoded here, because the client does not decode them."""
    try:
        import nats  # noqa: F401
    except ImportError:
        raise ConfigError("nats: URLs need the package nats-py; run pip install 'tidewheel[nats]'") from None
    files = {name: server.settings.get(name) for name in tls.SETTINGS}
    secure = server.scheme == "tls" or any(files.values())
    options: dict[str, Any] = {"servers": [host.url("tls" if secure else "nats", _PORT) for host in server.hosts]}
    if secure:
        options["tls"] = tls.tls_context(server.shown, **files)
    if server.password:
        options |= {"user": server.user, "password": server.password}
    elif server.user:
        options["token"] = server.user
    if credentials := credentials or server.settings.get("creds"):
        if not os.path.isfile(credentials):
            raise ConfigError(f"there is no file {credentials} with credentials for {server.shown}")
        options["user_credentials"] = credentials
    return options
