"""Check that a file source still reads the folder whose files it has read before. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from tidewheel._checkpoint.manifest import SeenFile
from tidewheel._connectors.files.paths import local_path
from tidewheel._engine.stored_names import OFFSETS, drop_option
from tidewheel.errors import StateError

_WILD = set("*?[{")
"""Characters of globs, which name several folders."""


def check_folders(seen: Iterable[SeenFile], folders: Mapping[str, str]) -> None:
    """Raise a `StateError` where a source reads another folder than the one of the file that it has seen last.

    `seen` are the entries of seen files, in their order; `folders` are the paths or URLs that file sources read, by name.
    Places that are not on this machine, and several folders as one, are skipped.
    """
    last = {file.source: re.sub(r"^\d+:", "", file.path) for file in seen}
    for name, where in folders.items():
        folder = local_path(where)
        if name in last and folder and not _WILD & set(folder):
            file = local_path(last[name])
            if file is not None and not _is_below(file, folder):
                raise StateError(
                    f"source {name!r} has read {file}, and its folder is {folder} now. To go on where it was, write the "
                    "whole old path, and leave a link there if the folder was moved. To read the new folder from its beginning, "
                    f"give the source a new name, and go on with {drop_option(OFFSETS, [name])}"
                )


def _is_below(file: str, folder: str) -> bool:
    """Return whether a file is the folder itself, which may be a single file, or somewhere in it.

    >>> [_is_below(file, "/in/") for file in ("/in/a.json", "/in/day=1/b.json", "/inner/a.json")]
    [True, True, False]
    """
    return f"{os.path.normpath(file)}/".startswith(f"{os.path.normpath(folder).rstrip('/')}/")
