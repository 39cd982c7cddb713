"""The code of this package that a process runs: a driver and its tasks must have the same."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import tidewheel
from tidewheel.errors import ConfigError

_ROOT = Path(__file__).parents[1]


@lru_cache(maxsize=1)
def own_code() -> str:
    """Return the digest of the package's files, read once: call it before a file can have changed.

    The digest is the same whether the files are in a folder or in an archive.
    """
    if _ROOT.is_dir():
        return digest_of({path.relative_to(_ROOT.parent).as_posix(): path.read_bytes() for path in _ROOT.rglob("*.py")})
    with zipfile.ZipFile(_ROOT.parent) as archive:
        return _digest({member.filename: member.CRC for member in archive.infolist()})


def digest_of(sources: Mapping[str, bytes]) -> str:
    """Return the digest of the package's files among these, which have paths such as `tidewheel/sinks.py`."""
    return _digest({path: zlib.crc32(data) for path, data in sources.items()})


def _digest(sums: Mapping[str, int]) -> str:
    own = [item for item in sums.items() if item[0].startswith("tidewheel/") and item[0].endswith(".py")]
    return f"{tidewheel.__version__}-{zlib.crc32(repr(sorted(own)).encode()):08x}"


def check_same_code(driver: str) -> None:
    """Refuse to run a task if the driver runs other code; `driver` is the driver's digest.

    Code of two versions may process a batch differently, and so lose state.
    """
    if driver != own_code():
        raise ConfigError(
            f"the driver runs other code of Tidewheel than this task: the driver has {driver}, the task {own_code()} from "
            f"{_ROOT}. It was installed or changed while the program ran, or a host has another version. Nothing is committed: "
            "start the program again, with the same version on all hosts"
        )
