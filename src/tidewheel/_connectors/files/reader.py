"""The reader of a folder of files: it numbers files in the order in which it takes them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._connectors.files.choose import Limits, ListedFile, chosen
from tidewheel._connectors.files.file_splits import FileSplits
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.listing import Listing, StoreListing
from tidewheel._connectors.files.paths import local_path
from tidewheel._connectors.source import SourceReader, Unread
from tidewheel._connectors.split import Split
from tidewheel.errors import StateError

_LARGE = 32 * 1024 * 1024
"""Files above this many bytes may be read by several tasks."""
_LEAST_SECONDS, _MOST_SECONDS = 0.05, 10.0
_SHARE_OF_LISTING = 10
"""A source that had nothing new is not listed again for so many times as long as listing took."""


class Taken(NamedTuple):
    """What a position says: how many files were taken, and before which time files are not taken any more."""

    files: int
    not_before_ms: int | None = None
    """Files of an earlier time are not read: those that were may be forgotten. None: the commit knows all files."""

    @classmethod
    def of(cls, position: Position) -> Taken:
        """Read a position."""
        if isinstance(position, int):
            return cls(position)
        if isinstance(position, dict) and isinstance(position.get("files"), int):
            return cls(position["files"], position.get("not_before_ms"))
        raise StateError(f"the position of a source of files is a number of files, not {position!r}")

    def position(self) -> Position:
        """Return the plain value for the commit."""
        if self.not_before_ms is None:
            return self.files
        return {"files": self.files, "not_before_ms": self.not_before_ms}


class FilesReader(SourceReader):
    """Reads the files of a source. A position is how many files were taken before it."""

    fixed_start = True

    def __init__(
        self,
        listing: Listing,
        limits: Limits,
        splits: FileSplits,
        *,
        by_name_only: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take what lists the files and what makes splits of them; `by_name_only`: equal names in other folders are one file."""
        self.schema = splits.schema
        self._listing, self._limits, self._splits = listing, limits, splits
        self._watched = listing.again()
        """For the thread that asks what waits."""
        self._by_name_only, self._clock = by_name_only, clock
        self._taken: set[str] = set()
        """The keys of all files that the job has taken, those of `_open` too."""
        self._newest_ms = 0
        self._last_name = ""
        """The last path that a commit has, in the order of paths."""
        self._open: dict[int, ListedFile] = {}
        """Files that no commit has yet, by their numbers."""
        self._adopted: list[ListedFile] = []
        """Files that a version before read in the order of their names."""
        self._frozen: list[ListedFile] | None = None
        self._list_at, self._pause = 0.0, _LEAST_SECONDS
        """When to list again after there was nothing new, and how long to wait the next time."""

    def start(self) -> Position:
        return 0

    def project(self, names: Sequence[str]) -> None:
        super().project(names)
        self._splits = replace(self._splits, only=tuple(names))

    def recall(self, seen: Iterable[SeenFile]) -> None:
        for file in seen:
            path = local_path(file.path) or file.path
            self._add(path, file.modified_ms)
            self._last_name = max(self._last_name, path)

    def _add(self, path: str, modified_ms: int) -> None:
        self._taken.add(self._key(path))
        self._newest_ms = max(self._newest_ms, modified_ms)

    def _key(self, path: str) -> str:
        return path.rpartition("/")[2] if self._by_name_only else path

    def end(self, start: Position) -> Position:
        place = self._place(start)
        self._forget_from(place.files)
        now = self._clock()
        if self._frozen is None and now < self._list_at <= now + _MOST_SECONDS:
            return start
        listed = self._list() if self._frozen is None else self._frozen
        not_before_ms = self._not_before(place, listed)
        files = chosen(listed, self._is_taken, self._limits, int(now * 1000), not_before_ms)
        if self._by_name_only:
            files = _one_of_each_name(files)
        if not files:
            self._list_at = self._clock() + self._pause
            return start
        if self._limits.order == "name":
            self._check_name(files[0].path)
        for number, file in enumerate(files, place.files):
            self._open[number] = file
            self._add(file.path, file.modified_ms)
        return Taken(place.files + len(files), not_before_ms).position()

    def _place(self, position: Position) -> Taken:
        if isinstance(position, dict) and "file" in position:
            return self._of_names(position)
        return Taken.of(position)

    def _of_names(self, position: dict[str, Any]) -> Taken:
        """Read the position of a version that took one file after the other by name: all up to its last name were taken."""
        if not self._adopted:
            for file in self._listing.files(self._is_taken):
                if "/" not in self._listing.relative(file.path) and file.path.rpartition("/")[2] <= position["file"]:
                    self._adopted.append(file)
                    self._add(file.path, file.modified_ms)
                    self._last_name = max(self._last_name, file.path)
        return Taken(len(self._adopted))

    def _not_before(self, place: Taken, listed: Iterable[ListedFile]) -> int | None:
        if self._limits.max_age_ms is None:
            return place.not_before_ms
        newest = max((file.modified_ms for file in listed), default=0)
        return max(max(newest, self._newest_ms) - self._limits.max_age_ms, place.not_before_ms or 0)

    def _forget_from(self, first: int) -> None:
        """Give back files that were taken for a batch that does not go on from here."""
        for number in [number for number in self._open if number >= first]:
            self._taken.discard(self._key(self._open.pop(number).path))

    def _check_name(self, path: str) -> None:
        last = max([self._last_name, *(file.path for file in self._open.values())])
        if path < last:
            raise StateError(
                f"files are read in the order of their names, {last} was read, and {path} came after it; give the file a name "
                'behind that, or leave out order="name"'
            )

    def _list(self) -> list[ListedFile]:
        began = time.perf_counter()
        listed = self._listing.files(self._is_taken)
        took = time.perf_counter() - began
        self._pause = min(max(took * _SHARE_OF_LISTING, _LEAST_SECONDS), _MOST_SECONDS)
        return listed

    def _is_taken(self, path: str) -> bool:
        return self._key(path) in self._taken

    def freeze(self) -> None:
        self._frozen = self._listing.files(self._is_taken)

    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        found: list[Split] = []
        for number in self._between(start, end):
            file = self._open[number]
            path, store = self._listing.place(file.path)
            opened = InputFile(path, file.size, file.modified_ms, store)
            parts = tasks if file.size >= _LARGE else 1
            found += self._splits.of(opened, self._listing.relative(file.path), parts)
        return found

    def _between(self, start: Position, end: Position) -> range:
        return range(self._place(start).files, self._place(end).files)

    def seen(self, start: Position, end: Position) -> list[SeenFile]:
        new = [(number, self._open[number]) for number in self._between(start, end)]
        before = list(enumerate(self._adopted)) if isinstance(start, dict) and "file" in start else []
        return [SeenFile("", file.path, number, file.modified_ms, file.size) for number, file in (*before, *new)]

    def unread(self, position: Position) -> Mapping[str, Unread] | None:
        if isinstance(self._listing, StoreListing):
            return {}  # A listing of a store has its price.
        limits = self._limits._replace(max_files=None, max_bytes=None)
        listed = self._watched.files(self._is_taken)
        not_before_ms = self._not_before(self._place(position), listed)
        waiting = chosen(listed, self._is_taken, limits, int(self._clock() * 1000), not_before_ms)
        since = min((_appeared(file.path) for file in waiting), default=None)
        return {"folder": Unread(0, 0, 0, files=len(waiting), since=since)}

    def committed(self, position: Position) -> None:
        taken = self._place(position).files
        for number in [number for number in self._open if number < taken]:
            self._last_name = max(self._last_name, self._open.pop(number).path)


def _one_of_each_name(files: list[ListedFile]) -> list[ListedFile]:
    first: dict[str, ListedFile] = {}
    for file in files:
        first.setdefault(file.path.rpartition("/")[2], file)
    return list(first.values())


def _appeared(path: str) -> float:
    """Return when a file got its name, in seconds since 1970; it may have been written long before."""
    try:
        return os.stat(path).st_ctime
    except OSError:
        return time.time()
