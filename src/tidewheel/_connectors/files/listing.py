"""The files of a folder or an object store that a source may take."""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from tidewheel._connectors.files.choose import ListedFile
from tidewheel._connectors.files.paths import local_path
from tidewheel._connectors.files.taken import TakenFiles
from tidewheel._storage import Store, open_store
from tidewheel.errors import StorageError

_TEMPORARY = (".tmp", ".crc", ".part", ".partial", ".inprogress", ".crdownload", "~")
_UNSETTLED_NS = 2 * 10**9
"""A folder that changed less than this before it was listed may change again without another time."""


class Pattern(NamedTuple):
    """Which files below a root are listed."""

    glob: str | None = None
    """What names of files must match."""
    recursive: bool = False
    """Whether files of all folders are listed; otherwise those of the root and of folders like `day=7`."""

    def takes_folder(self, name: str) -> bool:
        """Return whether the files of a folder are listed."""
        return not is_hidden(name) and (self.recursive or "=" in name)

    def takes_file(self, name: str) -> bool:
        """Return whether a file is listed."""
        return not is_hidden(name) and (self.glob is None or any(fnmatchcase(name, one) for one in _braces(self.glob)))


def is_hidden(name: str) -> bool:
    """Return whether a name is of a file that is hidden, or is still being written."""
    return name.startswith((".", "_")) or name.lower().endswith(_TEMPORARY)


class Listing(ABC):
    """Lists the files of a source again and again."""

    @abstractmethod
    def files(self, taken: TakenFiles, after: str = "") -> list[ListedFile]:
        """Return all files that are not taken; an object store lists only paths behind `after`, which takes fewer requests."""

    @abstractmethod
    def again(self) -> Listing:
        """Return another listing of the same, for another thread."""

    root: str
    """The path or URL of the source."""

    def has_below(self, path: str) -> bool:
        """Return whether a file on this machine is the root or below it; True if that cannot be known."""
        return True

    @abstractmethod
    def relative(self, path: str) -> str:
        """Return the path of a file below the root of the source."""

    @abstractmethod
    def place(self, path: str) -> tuple[str, Store | None]:
        """Return where tasks open a file: its path on the disk, or its path in a store."""


def listing(path: str, pattern: Pattern) -> Listing:
    """Return what lists a path or URL."""
    local = local_path(path)
    if local is not None:
        return LocalListing(local, pattern)
    # Spark's users write s3a for what all others call s3.
    return StoreListing(open_store(re.sub("^s3[an]:", "s3:", path)), pattern)


class LocalListing(Listing):
    """Lists folders of this machine. A folder that has not changed since it was listed is not looked through again."""

    def __init__(self, root: str, pattern: Pattern) -> None:
        """Take a folder, or a glob of folders and files."""
        self.root, self.pattern = os.path.normpath(root), pattern
        self._quiet: dict[str, tuple[int, list[str]]] = {}
        """By folder in which all files were skipped: when it changed last, and the folders in it."""

    def files(self, taken: TakenFiles, after: str = "") -> list[ListedFile]:
        found: list[ListedFile] = []
        for root in self._roots():
            if os.path.isdir(root):
                self._walk(root, taken, found)
            elif root not in taken and not is_hidden(os.path.basename(root)):
                found += _as_file(root, _status(root))
        # Folders that a glob finds may contain each other.
        return list(dict.fromkeys(found))

    def _roots(self) -> list[str]:
        if os.path.isdir(self.root) or not is_glob(self.root):
            return [self.root]
        return sorted({found for one in _braces(self.root) for found in glob.glob(one)})

    def _walk(self, folder: str, taken: TakenFiles, found: list[ListedFile]) -> None:
        try:
            now, changed = time.time_ns(), os.stat(folder).st_mtime_ns
            quiet = self._quiet.get(folder)
            if quiet is None or quiet[0] != changed:
                before = len(found)
                folders = self._scan(folder, taken, found)
                self._quiet.pop(folder, None)
                if len(found) == before and now - changed > _UNSETTLED_NS:
                    self._quiet[folder] = changed, folders
            else:
                folders = quiet[1]
        except FileNotFoundError:
            if folder == self.root:
                raise StorageError(f"the folder {folder} of a source is gone; put it back") from None
            return  # A partition was removed meanwhile.
        except OSError as error:
            raise StorageError(f"the folder {folder} of a source cannot be listed: {error.strerror}") from error
        for inner in folders:
            self._walk(inner, taken, found)

    def _scan(self, folder: str, taken: TakenFiles, found: list[ListedFile]) -> list[str]:
        """Add the files of a folder and return the folders in it. A file that is taken costs no more than its name."""
        folders = []
        for name in taken.others(folder, os.listdir(folder)):
            is_folder, is_file = self.pattern.takes_folder(name), self.pattern.takes_file(name)
            if is_folder or is_file:
                path = os.path.join(folder, name)
                status = _status(path)
                if is_folder and status is not None and stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif is_file:
                    found += _as_file(path, status)
        return sorted(folders)

    def again(self) -> Listing:
        return LocalListing(self.root, self.pattern)

    def has_below(self, path: str) -> bool:
        """Compare the paths. A glob names several folders, which may all be others than before.

        >>> listed = LocalListing("/in/", Pattern())
        >>> [listed.has_below(file) for file in ("/in", "/in/a.json", "/in/day=1/b.json", "/inner/a.json")]
        [True, True, True, False]
        """
        return is_glob(self.root) or f"{os.path.normpath(path)}/".startswith(f"{self.root.rstrip('/')}/")

    def relative(self, path: str) -> str:
        root = next((each for each in self._roots() if path.startswith(each.rstrip("/") + "/")), self.root)
        return os.path.relpath(path, root)

    def place(self, path: str) -> tuple[str, Store | None]:
        return path, None


def _status(path: str) -> os.stat_result | None:
    """Return the status of a file or folder; None if it was removed meanwhile, or is a link to nothing."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _as_file(path: str, status: os.stat_result | None) -> Iterator[ListedFile]:
    if status is not None and stat.S_ISREG(status.st_mode):
        yield ListedFile(path, status.st_mtime_ns // 1_000_000, status.st_size)


class StoreListing(Listing):
    """Lists an object store below a URL."""

    def __init__(self, store: Store, pattern: Pattern) -> None:
        self.root, self.store, self.pattern = store.url, store, pattern
        self._base = store.url.partition("?")[0].rstrip("/") + "/"

    def files(self, taken: TakenFiles, after: str = "") -> list[ListedFile]:
        found = []
        for entry in self.store.list(after=self.relative(after)):
            *folders, name = entry.path.split("/")
            path = self._base + entry.path
            if path not in taken and all(map(self.pattern.takes_folder, folders)) and self.pattern.takes_file(name):
                found.append(ListedFile(path, int(entry.modified * 1000), entry.size))
        return found

    def again(self) -> Listing:
        return StoreListing(self.store, self.pattern)

    def relative(self, path: str) -> str:
        return path.removeprefix(self._base)

    def place(self, path: str) -> tuple[str, Store | None]:
        return self.relative(path), self.store


def is_glob(path: str) -> bool:
    """Return whether a path has signs that stand for several names."""
    return glob.has_magic(path) or "{" in path


def _braces(pattern: str) -> list[str]:
    """Return the patterns that one with braces stands for.

    >>> _braces("*.{csv,tsv}")
    ['*.csv', '*.tsv']
    """
    begin, end = pattern.find("{"), pattern.find("}")
    if begin < 0 or end < begin:
        return [pattern]
    return [
        whole
        for part in pattern[begin + 1 : end].split(",")
        for whole in _braces(pattern[:begin] + part + pattern[end + 1 :])
    ]
