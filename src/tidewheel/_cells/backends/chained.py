"""Cells as chains of numbered records in a store: a version is a record's number, an exchange is an append.

A job's commit chain uses the same code. Only the newest record is needed; older ones are trimmed.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from functools import lru_cache
from urllib.parse import quote, unquote

from tidewheel._cells.backends.base import NOTHING, Backend, Held, Listener, Swap
from tidewheel._cells.deadline import Deadline
from tidewheel._cells.errors import AccessRefused, CellError, Offline
from tidewheel._storage import Store
from tidewheel._storage.chain import Chain, TrimmedError
from tidewheel.errors import AccessDenied, FencedError, StorageError

_LIMIT = 64 * 2**20
_TRIM_EVERY = 32
"""If a writer is suspended while this many others write, it only learns that its own write may have happened."""


class ChainedBackend(Backend):
    """The common part of chained backends; subclasses implement how changes are noticed."""

    limit = _LIMIT

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self._store = store
        self._lock = threading.Lock()
        self._chains: dict[str, Chain] = {}
        self._known: dict[str, int] = {}
        self._followed: set[str] = set()
        self._listener: Listener | None = None

    @abstractmethod
    def _check_reachable(self) -> None:
        """Raise `Offline` if the store is known to be unreachable; nothing has been attempted yet."""

    def follow(self, path: str) -> None:
        with self._lock:
            self._followed.add(path)

    def load(self, path: str, deadline: Deadline, known: int = 0) -> Held:
        self._check_reachable()
        try:
            head = self._chain(path).head(hint=self._known.get(path))
        except StorageError as error:
            raise explained(error, maybe=False) from error
        if head is None:
            return NOTHING
        self._known[path] = head.number
        return Held(head.number, head.data)

    def swap(self, path: str, base: Held, record: bytes, deadline: Deadline) -> Swap:
        self._check_reachable()
        chain, number = self._chain(path), base.version + 1
        try:
            applied = chain.append(number, record)
        except TrimmedError:
            applied = False
        except FencedError as error:
            raise Offline(f"{error}; whether this write happened is not known", maybe=True) from error
        except StorageError as error:
            raise explained(error, maybe=True) from error
        if not applied:
            return Swap(False, self.load(path, deadline))
        self._known[path] = number
        if base.version % _TRIM_EVERY == 0:
            self._trim(chain, base.version - _TRIM_EVERY)
        return Swap(True, Held(number, record))

    def list(self, prefix: str, deadline: Deadline) -> dict[str, Held]:
        self._check_reachable()
        try:
            paths = [path for path in self._numbers() if path.startswith(prefix)]
        except StorageError as error:
            raise explained(error, maybe=False) from error
        return {path: self.load(path, deadline) for path in paths}

    def _chain(self, path: str) -> Chain:
        with self._lock:
            if path not in self._chains:
                self._chains[path] = Chain(self._store, folder_of(path))
            return self._chains[path]

    def _trim(self, chain: Chain, below: int) -> None:
        """Delete old records. A failure does not fail the write, and the next trim deletes the rest."""
        try:
            chain.trim(below)
        except StorageError:
            return

    def _numbers(self) -> dict[str, int]:
        """List everything once and return the newest number of each path."""
        newest: dict[str, int] = {}
        for entry in self._store.list():
            folder, _, name = entry.path.rpartition("/")
            if folder.count("/") == 1 and name.endswith(".rec") and name[:-4].isdigit():
                newest[path_of(folder)] = int(name[:-4])
        return newest

    def _follows(self, path: str) -> bool:
        with self._lock:
            return path in self._followed or any(
                prefix.endswith("/") and path.startswith(prefix) for prefix in self._followed
            )

    def _reload(self, path: str) -> None:
        """Read the newest record of a path and report it; raise a `CellError` if the store is unreachable.

        Any other error affects only this path: it is reported to the path's readers and does not block other paths.
        """
        assert self._listener is not None
        try:
            held = self.load(path, Deadline(0))
        except CellError:
            raise
        except Exception as error:
            self._listener.unreadable(path, error)
            return
        if held.version:
            self._listener.changed(path, held)


def folder_of(path: str) -> str:
    """Return the folder of a path's chain: one level for the namespace and one for the name, with all characters escaped."""
    namespace, _, name = path.partition("/")
    return f"{_quoted(namespace)}/{_quoted(name)}"


@lru_cache(maxsize=4096)
def path_of(folder: str) -> str:
    """Return the path whose chain is in this folder."""
    namespace, _, name = folder.partition("/")
    return f"{unquote(namespace)}/{unquote(name)}"


def _quoted(part: str) -> str:
    text = quote(part, safe=" @+=,")
    return "%2E" + text[1:] if text.startswith(".") else text


def explained(error: StorageError, maybe: bool) -> CellError:
    """Convert a store's error into a cell error."""
    return AccessRefused(str(error)) if isinstance(error, AccessDenied) else Offline(str(error), maybe)
