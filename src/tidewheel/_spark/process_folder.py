"""Temporary folders that exist as long as this process."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

_made: dict[str, tempfile.TemporaryDirectory[str]] = {}
_making = threading.Lock()
"""Two threads that each made a folder would leave one of them with files in a folder that is removed at once."""


def process_folder(use: str) -> Path:
    """Return the folder of this process for a use: the same one for all threads, removed when the process ends."""
    with _making:
        if use not in _made:
            _made[use] = tempfile.TemporaryDirectory(prefix=f"tidewheel-{use}-")
        return Path(_made[use].name)
