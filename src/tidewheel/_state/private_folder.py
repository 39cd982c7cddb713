"""Folders that only this user can access, because write access to a local copy allows changing a job's state."""

from __future__ import annotations

import functools
import os
import stat
from pathlib import Path

from tidewheel._core.logs import logger
from tidewheel.errors import ConfigError

_LOG = logger(__name__)

_PRIVATE = 0o700


def make_private(folder: Path) -> None:
    """Create a folder, and its missing parents, for this user only.

    Raises `ConfigError` if the folder, its parent or a symbolic link on the way belongs to another user, who could
    replace the folder. Warns if everybody can rename entries of a parent folder: this is common for container volumes,
    which have one user.
    """
    for path in (*reversed(folder.parents), folder):
        try:
            path.mkdir(_PRIVATE)
        except FileExistsError:
            pass
        except OSError:
            # A parent that this user cannot write to already exists, or else creating the next folder fails with the
            # reason.
            if not path.is_dir():
                raise
        _check_link(path)
    real = Path(os.path.realpath(folder))
    for path in real.parents:
        status = os.lstat(path)
        if path == real.parent and status.st_uid not in (0, os.geteuid()):
            raise _refused(path, f"belongs to the user {status.st_uid}")
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            _warn_of_open_folder(path)
    # Do not follow a link that replaces the folder from here on.
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise _refused(real, f"belongs to the user {status.st_uid}")
        if stat.S_IMODE(status.st_mode) != _PRIVATE:
            os.fchmod(descriptor, _PRIVATE)
    finally:
        os.close(descriptor)


def _check_link(path: Path) -> None:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
        raise _refused(path, f"is a symbolic link of the user {status.st_uid}")


@functools.lru_cache
def _warn_of_open_folder(path: Path) -> None:
    _LOG.warning(
        "every user of this machine can rename the content of %s, such as local copies of state: set its sticky bit "
        "(chmod +t), or choose another folder (--local, TIDEWHEEL_LOCAL), unless this machine has no other users",
        path,
    )


def _refused(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"the folder {path} for local copies of state {why}, and this process runs as user {os.geteuid()}: another user could "
        "change the state. Remove the folder, or choose another one (--local, TIDEWHEEL_LOCAL)"
    )
