"""The timeline of a job's batches, and its charts."""

from __future__ import annotations

import time
from typing import Any

from tidewheel._ui.site import Site
from tidewheel._ui.views.figures import bar, charts

BARS = 200
POINTS = 600


def batches(site: Site, name: str, since: float | None = None, until: float | None = None) -> dict[str, Any]:
    """Return the charts of a time span, in seconds since 1970, and its newest commits as bars."""
    records = site.history.records(name, _nanoseconds(since), _nanoseconds(until))
    return {
        "charts": charts(records, POINTS, site.backlogs),
        "bars": [bar(record) for record in records[-BARS:]],
        "commits": len(records),
        "damaged": len(site.history.damaged),
        "unreached": len(site.history.unreached),
        "now": time.time(),
    }


def bars_after(site: Site, name: str, after: float) -> list[dict[str, Any]]:
    """Return the commits after a time as bars, with a limit on their number."""
    records = site.history.records(name, since=int(after * 1e9) + 1)
    return [bar(record) for record in records[-BARS:]]


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)
