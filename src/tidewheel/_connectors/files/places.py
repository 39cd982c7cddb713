"""Places for output files: a local folder, or a store at a URL, with one interface for sinks."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from tidewheel._connectors.files.formats import CheckedFile
from tidewheel._connectors.files.input_file import StoredFile
from tidewheel._storage import Store, open_store
from tidewheel._storage.file import FileStore
from tidewheel.errors import NotFound, StorageError

_ADVICE = {
    errno.ENOSPC: "the disk is full: make room and start again",
    errno.EDQUOT: "the disk quota is used up: make room and start again",
    errno.EACCES: "this user has no permission: change the owner or the mode",
    errno.EPERM: "this user has no permission: change the owner or the mode",
    errno.EROFS: "the file system is mounted read-only",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EEXIST: "there is a file of that name",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


class Place:
    """Files under relative paths in an object store. A move is a copy, and written files are durable at once.

    Raises `StorageError`s that say what happened, where, and what to do.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def at(self, path: str) -> str:
        """Return the full path or URL of a path, for messages."""
        return f"{path} at {self.store.url}" if path else self.store.url

    def check(self, folder: str) -> None:
        """Check that a folder is writable."""
        probe = f"{folder}/probe"
        self.store.write(probe, b"")
        self.store.delete(probe)

    def begin(self, path: str) -> CheckedFile:
        """Create a new file. It appears complete when it is closed, and is durable after `sync`."""
        # A store takes an object as a whole, which may be larger than memory: write it to a local file first.
        with explained("write", "a temporary file"):
            descriptor, name = tempfile.mkstemp(prefix="tidewheel-")
            os.unlink(name)
        return _Uploaded(descriptor, self.store, path)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of the files in a folder by name; an absent folder has none."""
        cut = len(folder) + 1
        sizes = {entry.path[cut:]: entry.size for entry in self.store.list(folder)}
        return {name: size for name, size in sizes.items() if "/" not in name}

    def has(self, path: str) -> bool:
        """Return whether the file exists."""
        try:
            self.store.read_range(path, 0, 1)
        except NotFound:
            return False
        except StorageError:
            # The file is empty, or the store is unavailable, which the next access reports.
            return True
        return True

    def read(self, path: str, size: int) -> pa.NativeFile:
        """Open a file of this size to read parts of it."""
        return pa.PythonFile(StoredFile(self.store, path, size), "r")

    def move(self, path: str, to: str) -> None:
        """Move a file; raise `NotFound` if it is absent. After a crash, the file is at one of the paths, or at both."""
        self.store.move(path, to)

    def touch(self, path: str) -> None:
        """Create an empty file."""
        self.store.write(path, b"")

    def remove(self, path: str) -> None:
        """Remove a file; an absent one is fine."""
        self.store.delete(path)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and its content; an absent one is fine."""
        for entry in self.store.list(folder):
            self.store.delete(entry.path)

    def sync(self, folders: Iterable[str]) -> None:
        """Make the files that were moved to or created in these folders durable."""

    def walk(self, hidden: str) -> Iterator[str]:
        """Yield the paths of all files at any depth, except below the folder `hidden`."""
        return (entry.path for entry in self.store.list() if entry.path.partition("/")[0] != hidden)


def place_at(path: str) -> Place:
    """Return the place at a path or at the URL of a store."""
    store = open_store(path)
    return LocalFolder(store) if isinstance(store, FileStore) else Place(store)


class LocalFolder(Place):
    """A folder that all tasks reach under the same path. A move is a rename, and other users can read the files."""

    def __init__(self, store: FileStore) -> None:
        super().__init__(store)
        self.root = Path(store.root)

    def at(self, path: str) -> str:
        return str(self.root / path)

    def check(self, folder: str) -> None:
        with explained("write to", self.at(folder)):
            _make_folder(self.root / folder)
            with tempfile.TemporaryFile(dir=self.root / folder):
                pass

    def begin(self, path: str) -> CheckedFile:
        # Write the file itself: readers ignore staged files.
        full = self.root / path
        with explained("write", self.at(path)):
            _make_folder(full.parent)
            return CheckedFile(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))

    def read(self, path: str, size: int) -> pa.NativeFile:
        return pa.OSFile(str(self.root / path))

    def move(self, path: str, to: str) -> None:
        target = self.root / to
        with explained("publish", self.at(to)):
            _make_folder(target.parent)
            try:
                os.rename(self.root / path, target)
            except FileNotFoundError as error:
                raise NotFound(f"there is no {self.at(path)}") from error

    def touch(self, path: str) -> None:
        # Not synced: if a power cut loses a marker, the newest sequence is published again, and finds its files in place.
        with explained("write", self.at(path)):
            _make_folder((self.root / path).parent)
            (self.root / path).touch()

    def remove_folder(self, folder: str) -> None:
        with explained("remove", self.at(folder)), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.root / folder)

    def sync(self, folders: Iterable[str]) -> None:
        for folder in folders:
            # A reader may have removed the folder of a partition.
            with explained("write", self.at(folder)), contextlib.suppress(FileNotFoundError):
                _sync_folder(self.root / folder)


class _Uploaded(CheckedFile):
    """A file that is uploaded to a store when it is closed."""

    def __init__(self, descriptor: int, store: Store, path: str) -> None:
        super().__init__(descriptor)
        self._store, self._path = store, path

    def close(self) -> None:
        if self.closed:
            return
        try:
            with mmap.mmap(self.fileno(), 0, access=mmap.ACCESS_READ) as content:
                self._store.write(self._path, content)  # type: ignore[arg-type]
        finally:
            self.discard()


@contextlib.contextmanager
def explained(verb: str, path: str) -> Iterator[None]:
    """Turn an error of the disk into a `StorageError` that says what failed, where, and what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk and the path")
        raise StorageError(
            f"could not {verb} {path}: {error.strerror or error}; {advice}. Nothing committed is lost"
        ) from error


def _make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
