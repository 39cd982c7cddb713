"""Notification of changes in folders by Linux's inotify, through `ctypes`.

Only three calls and one fixed struct are needed; a library would add threads and queues, and some delay events to pair
them. Where inotify is not available, `open_watch` returns a watch that polls every 50 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import struct
import sys
import threading
import time
from typing import Protocol

_CREATE, _DELETE_SELF, _MOVE_SELF, _MOVED_TO = 0x100, 0x400, 0x800, 0x80
_ONLYDIR = 0x01000000
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_WATCHED = _CREATE | _MOVED_TO | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_EVENT = struct.Struct("iIII")
_POLL_S = 0.05


class Watch(Protocol):
    """Notices files that appear in folders."""

    def add(self, folder: str) -> bool:
        """Watch a folder; return False if it does not exist or the watch was closed."""

    def wait(self, timeout: float) -> set[str] | None:
        """Return the folders in which files appeared; None if all folders must be checked."""

    def appeared(self) -> dict[str, set[str]] | None:
        """Return the names that have appeared, by folder, since the last call; None if some were missed. Does not wait."""

    def clear(self) -> None:
        """Forget all folders."""

    def wake(self) -> None:
        """End a wait at once. Does nothing after `close`."""

    def close(self) -> None:
        """Release the system resources. No thread may be in `wait` then, nor call it later."""


def open_watch() -> Watch:
    """Return the best watch that this system supports."""
    if sys.platform == "linux":
        try:
            return _Inotify()
        except OSError:
            return _Polling()  # All inotify instances of this user are in use.
    return _Polling()


class _Inotify:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "no inotify instance")
        self._woken, self._waker = os.pipe()
        self._folders: dict[int, str] = {}
        # The system reuses the numbers of closed descriptors: using one could access another file.
        self._lock = threading.Lock()
        self._closed = False
        self._poll = select.poll()
        for descriptor in (self._descriptor, self._woken):
            self._poll.register(descriptor, select.POLLIN)

    def add(self, folder: str) -> bool:
        with self._lock:
            if self._closed:
                return False
            number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _WATCHED)
            if number >= 0:
                self._folders[number] = folder
                return True
            error = ctypes.get_errno()
        if error in (errno.ENOENT, errno.ENOTDIR):
            return False
        raise OSError(error, f"{os.strerror(error)} (inotify; see /proc/sys/fs/inotify/max_user_watches)", folder)

    def wait(self, timeout: float) -> set[str] | None:
        ready = {descriptor for descriptor, _ in self._poll.poll(timeout * 1000)}
        if self._woken in ready:
            os.read(self._woken, 1024)
        found: dict[str, set[str]] = {}
        complete = self._descriptor not in ready or self._read(found)
        return set(found) if complete else None

    def appeared(self) -> dict[str, set[str]] | None:
        found: dict[str, set[str]] = {}
        complete = True
        with contextlib.suppress(BlockingIOError):
            while True:
                complete = self._read(found) and complete
        return found if complete else None

    def _read(self, found: dict[str, set[str]]) -> bool:
        """Add the next events by folder; return False if the system has dropped some."""
        data = os.read(self._descriptor, 1 << 16)
        at = 0
        complete = True
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            complete = complete and not mask & _OVERFLOW
            folder = self._folders.get(number)
            if folder is not None:
                found.setdefault(folder, set()).update([os.fsdecode(name)] if name else [])
            if mask & _IGNORED:
                self._folders.pop(number, None)
        return complete

    def clear(self) -> None:
        with self._lock:
            for number in () if self._closed else tuple(self._folders):
                self._libc.inotify_rm_watch(self._descriptor, number)
            self._folders.clear()

    def wake(self) -> None:
        with self._lock:
            if not self._closed:
                os.write(self._waker, b"x")

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                for descriptor in (self._descriptor, self._woken, self._waker):
                    os.close(descriptor)


class _Polling:
    def add(self, folder: str) -> bool:
        return os.path.isdir(folder)

    def wait(self, timeout: float) -> set[str] | None:
        time.sleep(min(timeout, _POLL_S))
        return None

    def appeared(self) -> dict[str, set[str]] | None:
        return None

    def clear(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass
