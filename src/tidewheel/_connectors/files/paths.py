"""Paths and URLs of files."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit


def local_path(path: str) -> str | None:
    """Return the path on this machine that a path or `file:` URL names, None for any other URL."""
    if ":" not in path.split("/")[0]:
        return path
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None
