"""The reader of a folder of files: it numbers files in the order in which it takes them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._connectors.files.choose import Limits, ListedFile, first_batch, in_order, waiting
from tidewheel._connectors.files.file_splits import FileSplits
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.listing import Listing, StoreListing
from tidewheel._connectors.files.paths import local_path
from tidewheel._connectors.files.taken import TakenFiles
from tidewheel._connectors.source import SourceReader, Unread, smaller
from tidewheel._connectors.split import Split
from tidewheel.errors import StateError

_LEAST_SECONDS, _MOST_SECONDS = 0.05, 10.0
_SHARE_OF_LISTING = 10
"""A listing is used for so many times as long as it took, if it found nothing, or more than a batch takes."""
_ALL_SECONDS = 60.0
"""How often an object store lists all names, where files are read in the order of names: to find one that came too late."""


class Taken(NamedTuple):
    """A position: the number of files that were taken, and the time before which files are ignored."""

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
        """Take the listing and the maker of splits. With `by_name_only`, equal names in several folders are one file."""
        self.schema = splits.schema
        self._listing, self._limits, self._splits = listing, limits, splits
        self._watched = listing.again()
        """For the thread that measures the backlog."""
        self._by_name_only, self._clock = by_name_only, clock
        self._taken = TakenFiles(by_name_only=by_name_only)
        """All files that the job has taken, those of `_open` too."""
        self._newest_ms = 0
        self._last_name = ""
        """The last path that a commit has, in the order of paths."""
        self._open: dict[int, ListedFile] = {}
        """Files that no commit has yet, by their numbers."""
        self._adopted: list[ListedFile] = []
        """Files that a version before read in the order of their names."""
        self._waiting: list[ListedFile] = []
        """Files of the last listing that no batch has taken, in the order in which batches take them."""
        self._not_before_ms: int | None = None
        self._frozen: list[ListedFile] | None = None
        """The files that were there when the run began, if it ends with them, until the first batch; then empty."""
        self._list_at = self._list_all_at = 0.0
        """Until when the last listing is used, and until when an object store need not list names that were read."""

    def start(self) -> Position:
        return 0

    def project(self, names: Sequence[str]) -> None:
        super().project(names)
        self._splits = replace(self._splits, only=tuple(names))

    def check(self, position: Position, last: SeenFile | None) -> None:
        """Refuse a folder that does not contain the file which was taken last: the position counts other files."""
        if not (isinstance(position, dict) and "file" in position):
            Taken.of(position)
        file = None if last is None else local_path(last.path)
        if file is not None and not self._listing.has_below(file):
            raise StateError(
                f"it has read {file}, and its folder is {self._listing.root} now. If the files were moved, leave a link at the "
                "old place, and name that whole path in the program"
            )

    def recall(self, seen: Iterable[SeenFile]) -> None:
        for file in seen:
            path = local_path(file.path) or file.path
            self._add(path, file.modified_ms)
            self._last_name = max(self._last_name, path)

    def reread(self, seen: Iterable[SeenFile]) -> None:
        for file in seen:
            path = local_path(file.path) or file.path
            self._open[file.number] = ListedFile(path, file.modified_ms, file.size)

    def _add(self, path: str, modified_ms: int) -> None:
        self._taken.add(path)
        self._newest_ms = max(self._newest_ms, modified_ms)

    def end(self, start: Position) -> Position:
        place = self._place(start)
        self._forget_from(place.files)
        now = self._clock()
        if self._frozen:
            self._wait_for(self._frozen, place)
            self._frozen = []
        elif self._frozen is None and not self._is_recent(now):
            self._look(place)
        if not self._waiting:
            return start
        limits = self._limits._replace(max_bytes=smaller(self._limits.max_bytes, self.limit))
        count = first_batch(self._waiting, limits)
        files, self._waiting = in_order(self._waiting[:count], self._limits.order), self._waiting[count:]
        if self._limits.order == "name":
            self._check_name(files[0].path)
        for number, file in enumerate(files, place.files):
            self._open[number] = file
            self._add(file.path, file.modified_ms)
        if not self._waiting:
            self._list_at = 0.0
        return Taken(place.files + len(files), self._not_before_ms).position()

    def amount(self, start: Position, end: Position) -> int:
        return sum(self._open[number].size for number in self._between(start, end))

    def _is_recent(self, now: float) -> bool:
        """Tell whether the last listing still serves. Where the newest files come first, it serves one batch."""
        return now < self._list_at <= now + _MOST_SECONDS and not (self._waiting and self._limits.newest_first)

    def _look(self, place: Taken) -> None:
        """List the files that wait. With more of them than a batch takes, or with none, the listing is used for a while."""
        began, now = time.perf_counter(), self._clock()
        resumes = self._limits.order == "name" and now < self._list_all_at <= now + _ALL_SECONDS
        self._list_all_at = self._list_all_at if resumes else now + _ALL_SECONDS
        self._wait_for(self._listing.files(self._taken, self._last_path() if resumes else ""), place)
        took = time.perf_counter() - began
        self._list_at = self._clock() + min(max(took * _SHARE_OF_LISTING, _LEAST_SECONDS), _MOST_SECONDS)

    def _wait_for(self, listed: Sequence[ListedFile], place: Taken) -> None:
        self._not_before_ms = self._not_before(place, listed)
        now_ms = int(self._clock() * 1000)
        self._waiting = waiting(listed, self._taken, self._limits, now_ms, self._not_before_ms)
        if self._by_name_only:
            self._waiting = _one_of_each_name(self._waiting)

    def _place(self, position: Position) -> Taken:
        if isinstance(position, dict) and "file" in position:
            return self._of_names(position)
        return Taken.of(position)

    def _of_names(self, position: dict[str, Any]) -> Taken:
        """Read the position of a version that took one file after the other by name: all up to its last name were taken."""
        if not self._adopted:
            for file in self._listing.files(self._taken):
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
        """Return the files of batches that will not be read from here on."""
        given_back = [self._open.pop(number) for number in [number for number in self._open if number >= first]]
        for file in given_back:
            self._taken.discard(file.path)
        if given_back:
            self._listing.forget()
            self._waiting = waiting([*given_back, *self._waiting], (), self._limits._replace(settle_ms=0), 0)

    def _last_path(self) -> str:
        return max([self._last_name, *(file.path for file in self._open.values())])

    def _check_name(self, path: str) -> None:
        last = self._last_path()
        if path < last:
            raise StateError(
                f"files are read in the order of their names, {last} was read, and {path} came after it; give the file a name "
                'behind that, or leave out order="name"'
            )

    def freeze(self) -> None:
        self._frozen = self._listing.files(self._taken)

    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        found: list[Split] = []
        for number in self._between(start, end):
            file = self._open[number]
            path, store = self._listing.place(file.path)
            opened = InputFile(path, file.size, file.modified_ms, store)
            parts = tasks if file.size >= self._limits.divided_bytes else 1
            found += self._splits.of(opened, self._listing.relative(file.path), parts)
        return found

    def missing(self, start: Position, end: Position) -> str | None:
        for number in self._between(start, end):
            file = self._open[number]
            path, store = self._listing.place(file.path)
            if store is not None:
                continue  # Reading it fails if it is gone.
            try:
                status = os.stat(path)
            except FileNotFoundError:
                return f"the file {path} is gone"
            if (status.st_mtime_ns // 1_000_000, status.st_size) != (file.modified_ms, file.size):
                return f"the file {path} has changed"
        return None

    def _between(self, start: Position, end: Position) -> range:
        return range(self._place(start).files, self._place(end).files)

    def seen(self, start: Position, end: Position) -> list[SeenFile]:
        new = [(number, self._open[number]) for number in self._between(start, end)]
        before = list(enumerate(self._adopted)) if isinstance(start, dict) and "file" in start else []
        return [SeenFile("", file.path, number, file.modified_ms, file.size) for number, file in (*before, *new)]

    def unread(self, position: Position) -> Mapping[str, Unread] | None:
        if isinstance(self._listing, StoreListing):
            return {}  # A listing of a store has its price.
        listed = self._watched.files(self._taken)
        not_before_ms = self._not_before(self._place(position), listed)
        unread = waiting(listed, self._taken, self._limits, int(self._clock() * 1000), not_before_ms)
        since = min((_appeared(file.path) for file in unread), default=None)
        return {"folder": Unread(0, 0, 0, files=len(unread), since=since)}

    def committed(self, position: Position) -> None:
        taken = self._place(position).files
        for number in [number for number in self._open if number < taken]:
            self._last_name = max(self._last_name, self._open.pop(number).path)

    def close(self) -> None:
        self._listing.close()


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
