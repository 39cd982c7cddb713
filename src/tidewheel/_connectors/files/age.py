"""For how long Spark's file source remembers a file: as long as it would take the file for a new one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_WEEK_MS = 7 * 24 * 3600 * 1000
_UNITS_MS = {
    "ms": 1,
    "": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 24 * 3_600_000,
}


def max_file_age_ms(options: Mapping[str, Any]) -> int | None:
    """Return Spark's `maxFileAge`, a week by default. None: files of any age are taken, so all must be remembered.

    >>> max_file_age_ms({}) == 7 * 24 * 3600 * 1000, max_file_age_ms({"maxFileAge": "36h"})
    (True, 129600000)
    >>> max_file_age_ms({"latestFirst": "true", "maxFilesPerTrigger": 10}) is None
    True
    """
    given = {name.lower(): str(value).strip().lower() for name, value in options.items()}
    # Spark ignores the age where it takes new files first and leaves older ones for later.
    if given.get("latestfirst") == "true" and given.keys() & {"maxfilespertrigger", "maxbytespertrigger"}:
        return None
    if "maxfileage" not in given:
        return _WEEK_MS
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", given["maxfileage"])
    return int(found[1]) * _UNITS_MS[found[2]] if found is not None and found[2] in _UNITS_MS else None
