"""Cells in a folder: for several processes on one machine. Crash-safe, without a server.

Changes are noticed by inotify, so a quiet cell costs nothing. Network file systems do not report changes of other
machines: use an object store or etcd there.
"""

from __future__ import annotations

import os
import threading

from tidewheel._cells.backends.base import Listener
from tidewheel._cells.backends.chained import ChainedBackend, folder_of, path_of
from tidewheel._cells.deadline import Deadline
from tidewheel._cells.errors import AccessRefused, CellError, Offline
from tidewheel._core import inotify
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._storage.file import FileStore, make_folder
from tidewheel.errors import StorageError

_LOOK_S = 0.25
"""How often to check that the folder is still the one that was opened: a disk may be unmounted."""


class FileBackend(ChainedBackend):
    """One folder per cell, below one per namespace."""

    def __init__(self, store: FileStore) -> None:
        super().__init__(store)
        self._root = store.root
        self._identity: tuple[int, int] | None = None
        self._attached: set[str] = set()
        self._fresh: set[str] = set()
        self._attaching = threading.Lock()
        self._watch: inotify.Watch | None = None
        self._thread = BackgroundThread(self._run, f"cells {self.url}", self._failed)
        self._online = True
        self._closed = False

    def start(self, listener: Listener, deadline: Deadline) -> None:
        try:
            make_folder(self._root)
            os.listdir(self._root)
        except PermissionError as error:
            raise AccessRefused(f"cells cannot be kept in {self._root}: {error.strerror}") from error
        except OSError as error:
            raise Offline(f"cells cannot be kept in {self._root}: {error.strerror}") from error
        self._identity = self._identify()
        self._listener = listener
        self._watch = inotify.open_watch()
        self._watch.add(self._root)
        listener.online()
        self._thread.start()

    def follow(self, path: str) -> None:
        super().follow(path)
        try:
            self._attach()
        except OSError as error:
            raise Offline(f"changes in {self._root} cannot be followed: {error.strerror}") from error

    def close(self) -> None:
        self._closed = True
        if self._watch is not None:
            self._watch.wake()
            self._thread.join()
            self._watch.close()

    def _check_reachable(self) -> None:
        # Otherwise the first write after the disk was unmounted would create a new, empty folder in its place.
        if self._identify() != self._identity:
            raise Offline(
                f"the folder {self._root} is not the folder that was opened: it was moved, or its disk is not mounted"
            )

    def _identify(self) -> tuple[int, int] | None:
        try:
            stat = os.stat(self._root)
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    def _attach(self) -> None:
        """Watch the existing folders of all followed paths; the parent folder reports when others appear."""
        assert self._watch is not None
        with self._lock:
            followed = tuple(self._followed)
        with self._attaching:
            for path in followed:
                namespace, _, name = folder_of(path if not path.endswith("/") else path + "x").partition("/")
                if not self._attached_to(namespace):
                    continue
                if not path.endswith("/"):
                    self._attached_to(f"{namespace}/{name}")
                    continue
                for folder in os.listdir(os.path.join(self._root, namespace)):
                    if path_of(f"{namespace}/{folder}").startswith(path):
                        self._attached_to(f"{namespace}/{folder}")

    def _attached_to(self, folder: str) -> bool:
        assert self._watch is not None
        if folder not in self._attached and self._watch.add(os.path.join(self._root, folder)):
            self._attached.add(folder)
            self._fresh.add(folder)
        return folder in self._attached

    def _run(self) -> None:
        """Report changes until closed. After a failure, check everything first."""
        assert self._watch is not None
        assert self._listener is not None
        while not self._closed:
            try:
                changed = self._watch.wait(_LOOK_S)
                self._check_reachable()
                if not self._online:
                    with self._attaching:
                        self._attached.clear()
                        self._watch.clear()
                        self._watch.add(self._root)
                    changed = None
                self._pass_on(changed)
            except (CellError, StorageError, OSError) as error:
                self._failed(error)
            else:
                if not self._online:
                    self._online = True
                    self._listener.online()

    def _failed(self, error: BaseException) -> OnError:
        """Report that changes may be missed; the thread continues."""
        assert self._listener is not None
        if self._online:
            self._online = False
            self._listener.offline(str(error) or type(error).__name__)
        return "end" if self._closed else "go on"

    def _pass_on(self, changed: set[str] | None) -> None:
        """Report new records in these folders; None: in all followed folders."""
        if changed is not None and not changed:
            return
        self._attach()
        with self._attaching:
            # A folder that is watched only now may have received records earlier: check it too.
            fresh, self._fresh = self._fresh, set()
            folders = set(self._attached)
        if changed is not None:
            folders = fresh.union(os.path.relpath(folder, self._root) for folder in changed)
        for folder in folders:
            if folder.count("/") == 1 and self._follows(path := path_of(folder)):
                self._reload(path)
