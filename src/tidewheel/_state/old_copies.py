"""Remove local copies that will not be used again.

A copy's folder is named by the job, its lineage and the boot of the machine. After a reboot, a fork, a restore or a
reset a new folder is used, and the old one would stay forever.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Final

_NAME = re.compile(r"(.+)-([0-9a-f]+)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")

UNUSED_S: Final = 7 * 24 * 3600.0
"""How long copies of another lineage must be unused before they are removed: another job of that name may use them."""


def remove_old_copies(folder: Path, now: float | None = None) -> list[Path]:
    """Remove the job's other copies next to `folder`: those of an earlier boot, and unused ones of another lineage.

    Return their folders. A copy that cannot be removed stays; another process may be removing it.
    """
    job, lineage, boot = _parts(folder.name)
    if not lineage:
        return []
    now = time.time() if now is None else now
    removed = []
    for other in folder.parent.glob(f"{_escaped(job)}-*"):
        if other.name == folder.name or not other.is_dir():
            continue
        name, its_lineage, its_boot = _parts(other.name)
        if name != job or not its_lineage:
            continue
        if its_boot != boot or (its_lineage != lineage and now - _last_written(other) > UNUSED_S):
            shutil.rmtree(other, ignore_errors=True)
            removed.append(other)
    return removed


def _parts(name: str) -> tuple[str, str, str]:
    """Return the job, the lineage and the boot of a folder's name; an empty lineage for any other name."""
    found = _NAME.fullmatch(name)
    return (found[1], found[2], found[3]) if found is not None else (name, "", "")


def _escaped(name: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def _last_written(folder: Path) -> float:
    """Return the time of the last write; a very old time for a folder that is being removed."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.glob("*/data.mdb")))
    except OSError:
        return 0.0
