"""The files of a folder or an object store that a source may take."""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from tidewheel._connectors.files.choose import ListedFile
from tidewheel._connectors.files.paths import local_path
from tidewheel._connectors.files.taken import TakenFiles
from tidewheel._core.inotify import Watch, open_watch
from tidewheel._storage import Store, open_store
from tidewheel.errors import StorageError

_TEMPORARY = (".tmp", ".crc", ".part", ".partial", ".inprogress", ".crdownload", "~")
_LARGE = 10_000
"""Folders with so many names are watched."""
_LISTED_AGAIN_S = 60.0
"""How long a watched folder that changes is not listed as a whole."""
_UNSETTLED_NS = 2 * 10**9
"""A folder that changed less than this before it was listed may change again without another time."""


class Pattern(NamedTuple):
    """Which files below a root are listed."""

    glob: str | None = None
    """The patterns that names of files must match."""
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

    def forget(self) -> None:  # noqa: B027
        """Look at everything again: files that were taken are not taken any more."""

    def close(self) -> None:  # noqa: B027
        """Release resources of the system."""

    @abstractmethod
    def again(self) -> Listing:
        """Return another listing of the same, for another thread. It need not be closed."""

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


def listing(path: str, pattern: Pattern, *, watches: bool = False) -> Listing:
    """Return the lister of a path or URL. If it `watches` large folders, it must be closed."""
    local = local_path(path)
    if local is not None:
        return LocalListing(local, pattern, _LARGE if watches else None)
    # Users of Spark write s3a for s3.
    return StoreListing(open_store(re.sub("^s3[an]:", "s3:", path)), pattern)


class _Folder(NamedTuple):
    """The result of the last look at a folder."""

    changed: int
    """When the folder had changed last."""
    folders: list[str]
    waiting: set[str]
    """The names of files that were not taken."""
    listed_at: float
    """When all names were listed."""
    settled: bool
    """Whether all names were listed so long after the last change that another change has another time."""
    watched: bool
    """Whether the system reports names that appear."""

    def needs_no_listing(self, changed: int, appeared: bool) -> bool:
        """Return whether there can be no other names than those that are known and those that have appeared."""
        if changed == self.changed and self.settled and not appeared:
            return True
        if not self.watched or time.monotonic() - self.listed_at > _LISTED_AGAIN_S:
            return False
        # Without a report, another host may have made the change.
        return appeared or changed == self.changed


class LocalListing(Listing):
    """Lists folders of this machine.

    A folder that has not changed since it was listed is not listed again. In a large folder that is watched, only the names
    that appear are looked at, as the system reports them. A change without a report leads to a full listing. A report that is
    missed, for example of a network file system, delays a file by a minute at most.
    """

    def __init__(self, root: str, pattern: Pattern, watched_from: int | None = None) -> None:
        """Take a folder, or a glob of folders and files; folders with at least `watched_from` names are watched."""
        self.root, self.pattern, self._watched_from = os.path.normpath(root), pattern, watched_from
        self._known: dict[str, _Folder] = {}
        self._watch: Watch | None = None
        self._appeared: dict[str, set[str]] = {}
        """Reported names, by folder, that were not looked at."""

    def files(self, taken: TakenFiles, after: str = "") -> list[ListedFile]:
        found: list[ListedFile] = []
        for root in self._roots():
            if os.path.isdir(root):
                self._walk(root, taken, found)
            elif root not in taken and not is_hidden(os.path.basename(root)):
                found += _as_file(root, _status(root))
        # Folders that a glob finds may contain each other.
        return list(dict.fromkeys(found))

    def forget(self) -> None:
        self._known.clear()

    def close(self) -> None:
        self._known.clear()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _roots(self) -> list[str]:
        if os.path.isdir(self.root) or not is_glob(self.root):
            return [self.root]
        return sorted({found for one in _braces(self.root) for found in glob.glob(one)})

    def _walk(self, folder: str, taken: TakenFiles, found: list[ListedFile]) -> None:
        try:
            known = self._known[folder] = self._look_at(folder, taken, found)
        except FileNotFoundError:
            self._known.pop(folder, None)
            if folder == self.root:
                raise StorageError(f"the folder {folder} of a source is gone; put it back") from None
            return  # A partition was removed meanwhile.
        except OSError as error:
            raise StorageError(f"the folder {folder} of a source cannot be listed: {error.strerror}") from error
        for inner in known.folders:
            self._walk(inner, taken, found)

    def _look_at(self, folder: str, taken: TakenFiles, found: list[ListedFile]) -> _Folder:
        """Add the files of a folder that are not taken."""
        now, changed = time.time_ns(), os.stat(folder).st_mtime_ns
        appeared = self._reported(folder)
        known = self._known.get(folder)
        if known is not None and known.needs_no_listing(changed, bool(appeared)):
            if appeared:
                # A change after the reports were read is reported at the next look.
                changed = os.stat(folder).st_mtime_ns
            folders, files = self._scan(folder, taken.others(folder, known.waiting | appeared))
            known = known._replace(
                changed=changed,
                folders=sorted({*known.folders, *folders}) if folders else known.folders,
                settled=known.settled and not appeared,
            )
        else:
            watched = known is not None and known.watched and self._watches(folder)
            listed_at, names = time.monotonic(), os.listdir(folder)
            if not watched and self._watched_from is not None and len(names) >= self._watched_from:
                # Names that appear between a listing and the beginning of the watch are not reported.
                watched = self._watches(folder)
                names = os.listdir(folder)
            folders, files = self._scan(folder, taken.others(folder, names))
            known = _Folder(changed, sorted(folders), set(), listed_at, now - changed > _UNSETTLED_NS, watched)
        found += files
        return known._replace(waiting={os.path.basename(file.path) for file in files})

    def _reported(self, folder: str) -> set[str]:
        """Return the names that have appeared in a folder, as far as the system has reported them."""
        reported = {} if self._watch is None else self._watch.appeared()
        if reported is None:  # Too many for the system.
            self._known = {path: known for path, known in self._known.items() if not known.watched}
            self._appeared.clear()
        for path, names in (reported or {}).items():
            self._appeared.setdefault(path, set()).update(names)
        return self._appeared.pop(folder, set())

    def _watches(self, folder: str) -> bool:
        """Watch a folder; return whether that is possible."""
        self._watch = self._watch or open_watch()
        try:
            return self._watch.add(folder)
        except OSError:
            return False  # This user watches as many folders as the system allows.

    def _scan(self, folder: str, names: Iterable[str]) -> tuple[list[str], list[ListedFile]]:
        """Return the folders and the files with these names. A name that the source does not take costs no system call."""
        folders, files = [], list[ListedFile]()
        for name in names:
            is_folder, is_file = self.pattern.takes_folder(name), self.pattern.takes_file(name)
            if is_folder or is_file:
                path = os.path.join(folder, name)
                status = _status(path)
                if is_folder and status is not None and stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif is_file:
                    files += _as_file(path, status)
        return folders, files

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
    """Return whether a path has wildcards."""
    return glob.has_magic(path) or "{" in path


def _braces(pattern: str) -> list[str]:
    """Return a pattern with braces as patterns without them.

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
