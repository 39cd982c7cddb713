"""Blobs at a URL: in memory, in a folder, in an object store.

>>> store = open_store("memory:docs")
>>> store.create("a/1", b"one")
True
>>> store.read("a/1")
b'one'
"""

from __future__ import annotations

from tidewheel._core.urls import OBJECT_STORES, Url
from tidewheel._storage.base import Entry, Store
from tidewheel.errors import ConfigError

__all__ = ["Entry", "Store", "open_store"]


def absolute(url: str) -> str:
    """Return a URL that stays valid when this process changes its working directory.

    >>> absolute("s3://bucket/state"), absolute("file:///data"), absolute("here").startswith("file:///")
    ('s3://bucket/state', 'file:///data', True)
    """
    scheme = Url(url).scheme
    rest = url.removeprefix(f"{scheme}:") if scheme else url
    if (scheme or "file") != "file" or not rest or rest.startswith("/"):
        return url
    return open_store(url).url


def open_store(url: str) -> Store:
    """Return the store at a URL.

    `file:///abs`, `file:rel` or a plain path; `memory:name`; `s3://bucket/prefix`, also with `gs:` and `az:`. Nothing
    is created or contacted yet; the first access raises if the store is unreachable.
    """
    place = Url(url)
    scheme, rest = place.scheme or "file", url.removeprefix(f"{place.scheme}:") if place.scheme else url
    if not rest:
        raise ConfigError(f"the URL {place} names no place; write for example file:///data/state or s3://bucket/prefix")
    if scheme == "file":
        from tidewheel._storage.file import FileStore

        return FileStore.from_url(url)
    if scheme == "memory":
        from tidewheel._storage.memory import MemoryStore

        return MemoryStore(rest)
    if scheme == "scratch":
        from tidewheel._storage.scratch import ScratchStore

        return ScratchStore(rest)
    if scheme in OBJECT_STORES:
        from tidewheel._storage.remote import RemoteStore

        return RemoteStore(url)
    raise ConfigError(
        f"the URL {place} has the unknown scheme {scheme!r}; known are file, memory, {', '.join(OBJECT_STORES)}"
    )
