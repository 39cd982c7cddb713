"""Open a file of a source, on the local disk or in an object store, and check that it has not changed since it was listed."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from tidewheel._storage import Store
from tidewheel.errors import ConfigError, NotFound, StepError, StorageError

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_UNKNOWN_CODECS = (".br", ".deflate", ".snappy", ".xz", ".z", ".zip")
COMPRESSED = frozenset({*_CODECS, *_UNKNOWN_CODECS})
"""The extensions of compressed files."""
_READ_AHEAD = 4 * 1024 * 1024
"""How much of an object is fetched at a time."""


@dataclass(frozen=True)
class InputFile:
    """A file and its state when it was listed."""

    path: str
    """The path on this machine, or below the root of the store."""
    size: int
    modified_ms: int
    """When it was changed last, in milliseconds since 1970."""
    store: Store | None = None
    """The store of the file; None: the local disk."""

    @property
    def shown(self) -> str:
        """The path or URL, for errors."""
        return self.path if self.store is None else f"{self.store.url.partition('?')[0].rstrip('/')}/{self.path}"

    @property
    def codec(self) -> str | None:
        """How the whole file is compressed, by its name."""
        name = self.path.lower()
        if name.endswith(_UNKNOWN_CODECS):
            raise ConfigError(
                f"{self.shown} is compressed in a way that is not supported; use gzip (.gz), Zstandard (.zst), LZ4 (.lz4) or "
                "bzip2 (.bz2)"
            )
        return next((codec for suffix, codec in _CODECS.items() if name.endswith(suffix)), None)

    @contextmanager
    def opened(self, kind: str, *, decompress: bool = False) -> Iterator[pa.NativeFile]:
        """Open the file. Errors in the block name its path and its kind, such as `an ORC file`."""
        codec = self.codec if decompress else None
        try:
            with self._bytes() as file:
                if codec is None:
                    yield file
                else:
                    with pa.CompressedInputStream(file, codec) as text:
                        yield text
        except (FileNotFoundError, NotFound) as error:
            raise self._gone() from error
        except (pa.ArrowException, OSError) as error:
            # Arrow raises an OSError without a number for bytes that are not of the format.
            failed = StorageError if isinstance(error, OSError) and error.errno is not None else StepError
            raise failed(f"{self.shown} cannot be read as {kind}: {error}") from error

    def _bytes(self) -> pa.NativeFile:
        if self.store is not None:
            return pa.PythonFile(StoredFile(self.store, self.path, self.size), "r")
        # It is not mapped into memory: a process that reads a part which was cut off meanwhile would be killed.
        file = pa.OSFile(self.path)
        status = os.stat(self.path)
        if (status.st_mtime_ns // 1_000_000, status.st_size) != (self.modified_ms, self.size):
            file.close()
            raise StorageError(
                f"{self.path} changed after it was listed for a batch; files of a source must appear whole and never change. "
                "Put the file back as it was, and give the changed one another name"
            )
        return file

    def _gone(self) -> StorageError:
        if self.store is not None:
            return StorageError(f"{self.shown} is gone, and a batch that is not committed has to read it; put it back")
        return StorageError(
            f"{self.path} is gone, or is not on the host {socket.gethostname()}, and a batch that is not committed has to read "
            "it; put it back. Tasks on other hosts need the folder under the same path"
        )


class StoredFile(io.RawIOBase):
    """An object of a store as a file: it is fetched in large pieces as it is read."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        self._store, self._path, self._size = store, path, size
        self._at = 0
        self._piece, self._piece_at = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._size - self._at if size is None or size < 0 else min(size, self._size - self._at)
        if wanted <= 0:
            return b""
        first = self._at - self._piece_at
        if not 0 <= first <= first + wanted <= len(self._piece):
            length = min(max(wanted, _READ_AHEAD), self._size - self._at)
            self._piece, self._piece_at = self._store.read_range(self._path, self._at, length), self._at
            first = 0
        self._at += wanted
        return self._piece[first : first + wanted]
