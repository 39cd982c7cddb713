"""A connection to a NATS server or cluster for synchronous code: the client's loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from tidewheel._core.urls import shown
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable

T = TypeVar("T")

_BETWEEN_TRIES_S = 0.1


class NatsConnection:
    """`nats://user:password@host:4222,host:4222`; `tls:` for TLS. `credentials` is the path of a `.creds` file.

    `timeout` is for each request, in seconds. A request that fails says so with `ConnectorUnavailable` if it may work later,
    with another `ConnectorError` if it will not. `url` is the URL without user and password: the one to show.
    """

    def __init__(self, url: str, *, credentials: str | None = None, timeout: float = 5.0) -> None:
        servers = server_urls(url)
        self.url = shown(url)
        self.timeout = timeout
        self._said = ""
        self._denied = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"nats {self.url}", daemon=True)
        self._thread.start()
        self.client: Any = None
        try:
            self.client = self.call(self._connect(servers, credentials), max(timeout, 2.0))
            self.jetstream = self.client.jetstream(timeout=timeout)
        except BaseException:
            self.close()
            raise

    def call(self, coroutine: Coroutine[Any, Any, T], limit: float | None = None) -> T:
        """Run a coroutine, of a few requests, in the loop's thread and return what it returns."""
        if self._loop.is_closed():
            coroutine.close()
            raise ConnectorError(f"the connection to {self.url} was closed")
        limited = self._in_time(coroutine, limit or 4 * self.timeout)
        return asyncio.run_coroutine_threadsafe(limited, self._loop).result()

    def call_until(self, deadline: float, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run what `make` returns, again and again while the server does not answer, up to a time of `time.monotonic`."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"NatsConnection({self.url!r})"

    async def _connect(self, servers: list[str], credentials: str | None) -> Any:
        try:
            import nats
        except ImportError:
            raise ConfigError("what is at nats: needs the package nats-py; run pip install 'tidewheel[nats]'") from None
        options = {} if credentials is None else {"user_credentials": credentials}
        connecting = asyncio.ensure_future(
            nats.connect(
                servers,
                connect_timeout=2,
                reconnect_time_wait=0.1,
                max_reconnect_attempts=-1,
                error_cb=self._note,
                **options,
            )
        )
        # The client would go on trying with the same password.
        denied = asyncio.ensure_future(self._denied.wait())
        await asyncio.wait([connecting, denied], return_when=asyncio.FIRST_COMPLETED)
        denied.cancel()
        if not connecting.done():
            connecting.cancel()
            raise nats.errors.AuthorizationError
        return connecting.result()

    async def _note(self, error: Exception) -> None:
        """Keep what the server said for the request that will fail because of it."""
        self._said = str(error)
        if "authorization violation" in self._said.lower():
            self._denied.set()

    async def _shut_down(self) -> None:
        """Close the connection, and end whatever it leaves running."""
        if self.client is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.client.close(), self.timeout)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

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
            said = f"; the last it said was: {self._said}" if self._said else ""
            raise ConnectorUnavailable(f"{self.url} does not answer ({type(error).__name__} {error}{said})") from error


def server_urls(url: str) -> list[str]:
    """Return the URL of each server of a cluster, or refuse what is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("nats", "tls") or not parts.netloc:
        raise ConfigError(f"the URL {shown(url)!r} must name a NATS server, as in nats://localhost:4222")
    hosts = parts.netloc.split(",")
    user, at, _ = hosts[0].rpartition("@")
    return [f"{parts.scheme}://{host if '@' in host else user + at + host}" for host in hosts]
