"""Cells in an object store with conditional puts: for several machines, without a server.

Object stores do not report changes, so one listing every `poll_s` seconds (default 1; set in the URL, as `?poll_s=0.2`)
finds the changes of all cells of the connection.
"""

from __future__ import annotations

import threading
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tidewheel._cells.backends.base import Listener
from tidewheel._cells.backends.chained import ChainedBackend, explained
from tidewheel._cells.deadline import Deadline
from tidewheel._cells.errors import CellError, Offline
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._core.urls import Url
from tidewheel._storage import open_store
from tidewheel.errors import ConfigError, StorageError

_POLL_S = 1.0
_RETRY_S = 3.0


class ObjectStoreBackend(ChainedBackend):
    """Records below a prefix of a bucket, followed by polling."""

    def __init__(self, url: Url) -> None:
        parts = urlsplit(url.reveal())
        query = dict(parse_qsl(parts.query))
        try:
            self._poll_s = float(query.pop("poll_s", _POLL_S))
        except ValueError:
            raise ConfigError(f"poll_s in {url} must be a number of seconds") from None
        query.setdefault("retry_s", str(_RETRY_S))
        super().__init__(open_store(urlunsplit(parts._replace(query=urlencode(query, safe=":/")))))
        self.url = str(url)
        self._stop = threading.Event()
        self._away: str | None = None
        self._thread = BackgroundThread(self._run, f"cells {self.url}", self._failed)

    def start(self, listener: Listener, deadline: Deadline) -> None:
        try:
            self._numbers()
        except StorageError as error:
            raise explained(error, maybe=False) from error
        self._listener = listener
        listener.online()
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _check_reachable(self) -> None:
        """Check the store if the last poll failed: a write that was not attempted has certainly not happened."""
        if self._away is not None:
            try:
                self._store.list("away")
            except StorageError as error:
                raise Offline(str(error)) from error

    def _run(self) -> None:
        assert self._listener is not None
        while not self._stop.wait(self._poll_s):
            try:
                for path, newest in self._numbers().items():
                    if newest > self._known.get(path, 0) and self._follows(path):
                        self._reload(path)
            except (CellError, StorageError) as error:
                self._failed(error)
            else:
                if self._away is not None:
                    self._away = None
                    self._listener.online()

    def _failed(self, error: BaseException) -> OnError:
        """Report that changes may be missed; the thread continues."""
        assert self._listener is not None
        if self._away is None:
            self._away = str(error) or type(error).__name__
            self._listener.offline(self._away)
        return "go on"
