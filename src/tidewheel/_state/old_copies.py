"""Local copies that nobody will open again, and their removal.

A copy's folder is named by the job, its lineage and the boot of the machine. After a reboot, a fork, a restore or a reset a
new one is begun, and the old one would stay for ever.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Final

_NAME = re.compile(r"(.+)-([0-9a-f]+)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")

UNUSED_S: Final = 7 * 24 * 3600.0
"""For how long nothing was written to the copies of another lineage before they go: another job of that name may have them."""


def remove_old_copies(folder: Path, now: float | None = None) -> list[Path]:
    """Remove the copies beside `folder` that belong to the same job and are of an earlier boot, or of another lineage and unused.

    Return their folders. Whatever cannot be removed stays: others may be at it, too.
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
    """Return the job, the lineage and the boot of a folder's name; of any other name, an empty lineage."""
    found = _NAME.fullmatch(name)
    return (found[1], found[2], found[3]) if found is not None else (name, "", "")


def _escaped(name: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def _last_written(folder: Path) -> float:
    """Return when something was last written there; a folder that is being removed by somebody else is as old as can be."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.glob("*/data.mdb")))
    except OSError:
        return 0.0
