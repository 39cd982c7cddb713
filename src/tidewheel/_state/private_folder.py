"""Folders that belong to this user alone: whoever can write a local copy can change the state that a job works on."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tidewheel.errors import ConfigError

_PRIVATE = 0o700


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone; a `ConfigError` if it is another user's.

    The folder above it must be this user's or root's: its owner could put another folder in the place of this one.
    """
    for path in (*reversed(folder.parents), folder):
        try:
            path.mkdir(_PRIVATE)
        except FileExistsError:
            continue
        except OSError:
            # A folder above that this user may not write to exists already, or else the next one fails with the reason.
            if not path.is_dir():
                raise
    status = os.stat(folder)
    for path, owner in ((folder, status.st_uid), (folder.parent, os.stat(folder.parent).st_uid)):
        if owner != os.geteuid() and (path == folder or owner != 0):
            raise ConfigError(
                f"the folder {path} for local copies of state belongs to the user {owner}, and this process runs as user "
                f"{os.geteuid()}: that user could change the state. Remove the folder, or choose another one (--local, "
                "TIDEWHEEL_LOCAL)"
            )
    if stat.S_IMODE(status.st_mode) != _PRIVATE:
        folder.chmod(_PRIVATE)
