"""Cells: one value, agreed on everywhere.

>>> with open_cells("memory:") as connection:
...     threshold = connection.writer("threshold", float)
...     version = threshold.write(0.5)
...     threshold.read(), threshold.compare_exchange(0.5, 0.75).applied, threshold.read()
(0.5, True, 0.75)
"""

from __future__ import annotations

from tidewheel._cells.backends.base import Backend
from tidewheel._cells.connection import Connection
from tidewheel._core.urls import OBJECT_STORES, Url
from tidewheel._time.duration import Duration
from tidewheel.errors import ConfigError

__all__ = ["open_cells"]


def open_cells(url: str | Url, *, timeout: Duration = "10 s", program: str | None = None) -> Connection:
    """Connect to the cells at a URL.

    `memory:name`; `file:///abs`, `file:rel` or a plain path; `s3://bucket/prefix`, also with `gs:` and `az:`;
    `etcd://host:port,host:port/prefix`. `timeout` applies to this call and is the default of all commands. `program` is
    recorded as the author of changes, with user and host; by default the script's name.
    """
    return Connection(_backend(Url(url)), timeout, program)


def _backend(url: Url) -> Backend:
    scheme = url.scheme or "file"
    if scheme == "memory":
        from tidewheel._cells.backends.memory import MemoryBackend

        return MemoryBackend(url.reveal().removeprefix("memory:"))
    if scheme == "file":
        from tidewheel._cells.backends.file import FileBackend
        from tidewheel._storage.file import FileStore

        if not url.reveal().removeprefix("file:"):
            raise ConfigError(f"the URL {url} names no folder; write for example file:///var/lib/cells")
        return FileBackend(FileStore.from_url(url.reveal()))
    if scheme in OBJECT_STORES:
        from tidewheel._cells.backends.objectstore import ObjectStoreBackend

        return ObjectStoreBackend(url)
    if scheme in ("etcd", "etcds"):
        from tidewheel._cells.backends.etcd import EtcdBackend

        return EtcdBackend(url)
    known = ", ".join(("memory", "file", *OBJECT_STORES, "etcd", "etcds"))
    raise ConfigError(f"the URL {url} has the unknown scheme {scheme!r}; cells can be at: {known}")
