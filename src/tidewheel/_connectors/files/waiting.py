"""Which files of a folder wait to be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from tidewheel._connectors.source import Unread

MOST = 100_000
"""How many files of a folder are looked at. Beyond that nothing is told: a look must stay cheap."""


def visible(folder: str, *, deep: bool) -> Iterator[os.DirEntry[str]]:
    """Give the files of a folder, and with `deep` of the folders in it, without what begins with `.` or `_`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")):
                continue
            if entry.is_file():
                yield entry
            elif deep and entry.is_dir():
                yield from visible(entry.path, deep=True)


def unread_files(files: Iterable[os.DirEntry[str]], waits: Callable[[os.DirEntry[str]], bool]) -> dict[str, Unread]:
    """Return how many of the files wait, and since when the oldest is there; nothing if there are too many files."""
    count, oldest = 0, None
    for number, entry in enumerate(files):
        if number == MOST:
            return {}
        try:
            if waits(entry):
                # When the file got its name. When it was written may be years ago.
                there = entry.stat().st_ctime
                count, oldest = count + 1, there if oldest is None else min(there, oldest)
        except FileNotFoundError:
            continue  # It went meanwhile.
    return {"folder": Unread(0, 0, 0, files=count, since=oldest)}
