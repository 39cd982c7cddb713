"""The data folder of a table in an object store, by the file access that its catalog has granted."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidewheel._connectors.files.places import Place, place_at
from tidewheel._storage.base import Entry, Store, check_length, check_path
from tidewheel.errors import NotFound

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table


def folder_of(table: Table) -> str:
    """Return the location of the data files that the sink writes."""
    return str(table.properties.get("write.data.path") or f"{table.location()}/data").rstrip("/")


def place_of(table: Table) -> Place:
    """Return the place of the data files. Local files are synced; others are written by the client of the table."""
    folder = folder_of(table)
    return place_at(folder) if urlsplit(folder).scheme in ("", "file") else Place(_IoStore(table.io, folder))


class _IoStore(Store):
    def __init__(self, io: FileIO, url: str) -> None:
        self._io, self.url = io, url

    def read(self, path: str) -> bytes:
        try:
            with self._io.new_input(self._full(path)).open() as file:
                return bytes(file.read())
        except FileNotFoundError:
            raise NotFound(f"there is no {path} at {self.url}") from None

    def read_range(self, path: str, start: int, length: int) -> bytes:
        try:
            with self._io.new_input(self._full(path)).open() as file:
                file.seek(start)
                return check_length(path, self.url, start, length, bytes(file.read(length)))
        except FileNotFoundError:
            raise NotFound(f"there is no {path} at {self.url}") from None

    def create(self, path: str, data: bytes) -> bool:
        if not self._io.new_output(self._full(path)).exists():
            self.write(path, data)
        return self.read(path) == data

    def write(self, path: str, data: bytes) -> None:
        with self._io.new_output(self._full(path)).create(overwrite=True) as file:
            file.write(data)

    def list(self, prefix: str = "", after: str = "") -> list[Entry]:
        from pyarrow.fs import FileSelector
        from pyiceberg.io.pyarrow import PyArrowFileIO

        if not isinstance(self._io, PyArrowFileIO):
            return []
        scheme, netloc, root = PyArrowFileIO.parse_location(self._full(prefix) if prefix else self.url)
        selector = FileSelector(root, allow_not_found=True, recursive=True)
        files = [info for info in self._io.fs_by_scheme(scheme, netloc).get_file_info(selector) if info.is_file]
        base = f"{prefix}/" if prefix else ""
        entries = [
            Entry(f"{base}{info.path[len(root) :].lstrip('/')}", info.size, (info.mtime_ns or 0) / 1e9)
            for info in files
        ]
        return sorted((entry for entry in entries if entry.path > after), key=lambda entry: entry.path)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._io.delete(self._full(path))

    def at(self, prefix: str) -> Any:
        return _IoStore(self._io, self._full(prefix))

    def _full(self, path: str) -> str:
        return f"{self.url}/{check_path(path)}"
