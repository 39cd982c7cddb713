"""A store in a local folder (or a shared one with POSIX semantics), crash-safe.

Bytes are written to a temporary file and synced to disk, the file gets its name, and then the folder is synced: after a
power failure an object is complete or absent, and an acknowledged object exists.

Only this user can access files and folders (0600, 0700). Below a folder that its owner made writable for its group,
that group can too (0660, 0770): so several users share a store only by a deliberate decision.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

from tidewheel._storage.base import Entry, Store, check_length, check_path
from tidewheel.errors import AccessDenied, ConfigError, NotFound, StorageError

_Names = list[str]

_TEMPORARY = ".tidewheel-tmp-"
_counter = itertools.count()
# An unnamed file gets its name through /proc.
_UNNAMED: int | None = getattr(os, "O_TMPFILE", None) if os.path.isdir("/proc/self/fd") else None
_REFUSES_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR}

_ADVICE = {
    errno.EACCES: "this user may not; change the owner or the mode, or run as a user who may",
    errno.EPERM: "this user may not; change the owner or the mode, or run as a user who may",
    errno.EROFS: "the file system is mounted read-only; choose another place or mount it writable",
    errno.ENOSPC: "the disk is full; make room, then run again: nothing committed is lost",
    errno.EDQUOT: "the disk quota is used up; make room, then run again: nothing committed is lost",
    errno.ENOTDIR: "a part of the path is a file, not a folder; choose another place",
    errno.EISDIR: "there is a folder of that name; choose another place",
    errno.EMFILE: "this process has too many files open; raise `ulimit -n`",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


class FileStore(Store):
    """Objects as files below a folder, which the first write creates."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.url = "file://" + quote(self.root)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Open `file:///abs`, `file:rel` or a plain path."""
        if not url.startswith("file:"):
            return cls(url)
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise ConfigError(
                f"the URL {url!r} names the host {parts.netloc!r}; "
                "a local folder is file:///abs/path (three slashes) or file:rel/path"
            )
        return cls(unquote(parts.path))

    def read(self, path: str) -> bytes:
        with self._explained("read", path), open(self._full(path), "rb", buffering=0) as file:
            return file.read()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with self._explained("read", path):
            descriptor = os.open(self._full(path), os.O_RDONLY)
            try:
                # Python allocates the requested size, and a length past the end may be any number.
                length_there = max(0, min(length, os.fstat(descriptor).st_size - start))
                data = os.pread(descriptor, length_there, start)
                while 0 < len(data) < length_there and (
                    more := os.pread(descriptor, length_there - len(data), start + len(data))
                ):
                    data += more
            finally:
                os.close(descriptor)
        return check_length(path, self.url, start, length, data)

    def create(self, path: str, data: bytes) -> bool:
        folder, name = os.path.split(self._full(path))
        with self._explained("create", path), _opened_folder(folder) as at:
            while True:
                try:
                    _link_new(at, name, data)
                except FileExistsError:
                    try:
                        same = self.read(path) == data
                    except NotFound:
                        continue
                else:
                    same = True
                # Also for an existing object: its writer may not have synced the folder yet.
                os.fsync(at)
                return same

    def write(self, path: str, data: bytes) -> None:
        folder, name = os.path.split(self._full(path))
        with (
            self._explained("write", path),
            _opened_folder(folder) as at,
            _named_temporary(at, data) as temporary,
        ):
            os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
            os.fsync(at)

    def list(self, prefix: str = "", after: str = "") -> list[Entry]:
        start = os.path.join(self.root, check_path(prefix)) if prefix else self.root
        entries: list[Entry] = []
        pending = [(start, f"{prefix}/" if prefix else "")]
        while pending:
            folder, within = pending.pop()
            with (
                self._explained("list", within or "."),
                contextlib.suppress(FileNotFoundError),
                os.scandir(folder) as items,
            ):
                for item in items:
                    if item.name.startswith(_TEMPORARY):
                        continue
                    if item.is_dir(follow_symlinks=False):
                        pending.append((item.path, f"{within}{item.name}/"))
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        status = item.stat()
                        entries.append(Entry(within + item.name, status.st_size, status.st_mtime))
        return sorted((entry for entry in entries if entry.path > after), key=lambda entry: entry.path)

    def folders(self, prefix: str = "") -> _Names:
        folder = os.path.join(self.root, check_path(prefix)) if prefix else self.root
        with self._explained("list", prefix or "."):
            try:
                with os.scandir(folder) as items:
                    return sorted(item.name for item in items if item.is_dir(follow_symlinks=False))
            except FileNotFoundError:
                return []

    def delete(self, path: str) -> None:
        with self._explained("delete", path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._full(path))

    def at(self, prefix: str) -> Self:
        return type(self)(os.path.join(self.root, check_path(prefix)))

    def _full(self, path: str) -> str:
        return f"{self.root}/{check_path(path)}"

    @contextlib.contextmanager
    def _explained(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotFound(f"there is no {path} at {self.url}") from error
        except OSError as error:
            advice = _ADVICE.get(error.errno or 0, "check the disk and the path")
            kind = AccessDenied if isinstance(error, PermissionError) else StorageError
            raise kind(f"could not {verb} {path} at {self.url}: {error.strerror or error}; {advice}") from error


def open_file(path: str, flags: int) -> int:
    """Open or create a file of a folder store, with the mode of the store's other files; return its descriptor."""
    folder, name = os.path.split(path)
    with _opened_folder(folder) as at:
        try:
            descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=at)
        except FileExistsError:
            return os.open(name, flags | os.O_CREAT, 0o600, dir_fd=at)
        _share(descriptor, at)
        return descriptor


def make_folder(folder: str) -> None:
    """Create a folder, and its missing parents, with the mode of a store's folders."""
    with _opened_folder(folder):
        pass


@contextlib.contextmanager
def _opened_folder(folder: str) -> Iterator[int]:
    """Open the folder; create it durably, with its parents, if it does not exist."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        _make_folder(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_folder(folder: str) -> None:
    parent = os.path.dirname(folder)
    with _opened_folder(parent) as at, contextlib.suppress(FileExistsError):
        os.mkdir(os.path.basename(folder), 0o700, dir_fd=at)
        if _is_shared(at):
            os.chmod(os.path.basename(folder), 0o2770, dir_fd=at)
        os.fsync(at)


def _is_shared(folder: int) -> bool:
    """Return whether the group of an open folder, but not everybody, can write to it."""
    return os.fstat(folder).st_mode & (stat.S_IWGRP | stat.S_IWOTH) == stat.S_IWGRP


def _share(file: int, folder: int) -> None:
    """Give the group of a shared folder access to a new file in it."""
    if _is_shared(folder):
        os.fchmod(file, 0o660)


def _link_new(at: int, name: str, data: bytes) -> None:
    """Create a file with these bytes in an open folder; raise FileExistsError if it exists.

    An unnamed file saves a third of the time, and a crash leaves nothing behind; not every file system supports it.
    """
    descriptor = None
    if _UNNAMED is not None:
        try:
            descriptor = os.open(".", os.O_WRONLY | _UNNAMED, 0o600, dir_fd=at)
        except OSError as error:
            if error.errno not in _REFUSES_UNNAMED:
                raise
    if descriptor is None:
        with _named_temporary(at, data) as temporary:
            os.link(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        return
    try:
        _share(descriptor, at)
        _write_through(descriptor, data)
        # Pass both folder descriptors so that Python calls linkat, the only call that can follow this link.
        os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=at, dst_dir_fd=at)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named_temporary(at: int, data: bytes) -> Iterator[str]:
    """Write bytes to a temporary file of an open folder and yield its name; delete it afterwards."""
    temporary = f"{_TEMPORARY}{os.getpid()}-{next(_counter)}-{secrets.token_hex(4)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=at)
    try:
        try:
            _share(descriptor, at)
            _write_through(descriptor, data)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=at)


def _write_through(descriptor: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    # The size counts as data here; the rest of the inode is synced with the folder.
    os.fdatasync(descriptor) if hasattr(os, "fdatasync") else os.fsync(descriptor)
