"""What Spark's file sources have not read: the files of their folders that are not among those that the job has seen."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from tidewheel._checkpoint.manifest import Manifest, SeenFile
from tidewheel._connectors.files.paths import local_path
from tidewheel._connectors.files.source import Files
from tidewheel._connectors.files.waiting import MOST, unread_files, visible
from tidewheel._connectors.source import Source, Unread
from tidewheel._engine.seen_files import SeenFiles
from tidewheel._state.references import PartRef

_CHOOSING = {"pathglobfilter", "modifiedbefore", "modifiedafter"}
"""Options by which Spark leaves out files of a folder."""


class _Seen:
    """The files of one source."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.newest = 0
        """The time of the newest, in ms."""

    def add(self, path: str, at: int) -> None:
        self.paths.add(path)
        self.newest = max(self.newest, at)


class UnreadFiles:
    """Tells what is not read as of the newest commit. For one thread: it remembers what it has read of the job's state."""

    def __init__(self, seen: SeenFiles, head: Callable[[], Manifest]) -> None:
        """Take what reads the entries of seen files, and what gives the newest commit."""
        self._seen, self._head = seen, head
        self._parts: dict[str, list[SeenFile]] = {}

    def of(self, name: str, source: Source) -> Mapping[str, Unread] | None:
        """Return what a source has not read; None if it is none of Spark's file sources.

        Nothing, if that cannot be told: it reads no local folder, or one of too many files.
        """
        if not isinstance(source, Files):
            return None
        folder = local_path(source.path)
        if folder is None or not os.path.isdir(folder) or _CHOOSING & {option.lower() for option in source.options}:
            return {}
        state = self._head()
        parts = [part for part in (state.driver.snapshot, *state.driver.deltas) if part is not None]
        if name not in state.source_offsets or sum(part.keys for part in parts) > MOST:
            return {}
        seen = self._files(parts, state.seen, name)
        age = source.seen_age_ms()
        forgotten = None if age is None or not seen.newest else seen.newest - age

        def waits(entry: os.DirEntry[str]) -> bool:
            if entry.path in seen.paths:
                return False
            return forgotten is None or entry.stat().st_mtime * 1000 >= forgotten

        return unread_files(visible(os.path.normpath(folder), deep=True), waits)

    def _files(self, parts: list[PartRef], inline: tuple[SeenFile, ...], source: str) -> _Seen:
        """Return the files that a source has seen; state files never change, so each is read once."""
        self._parts = {
            part.file.name: self._parts.get(part.file.name) or list(self._seen.entries(part)) for part in parts
        }
        seen = _Seen()
        for files in (*self._parts.values(), inline):
            for file in files:
                if file.source == source:
                    path = re.sub(r"^\d+:", "", file.path)
                    seen.add(local_path(path) or path, file.modified_ms)
        return seen
