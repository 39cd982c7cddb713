"""The errors of a job's runs, with their tracebacks, and the rejected records."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tidewheel._ui.site import Site
from tidewheel._ui.views.jobs import newest_records

_SHOWN = 100


def errors(site: Site, name: str) -> dict[str, Any]:
    """Return the newest errors, newest first; the recent number of rejected records per step, and some of them."""
    dead: dict[str, int] = {}
    letters: list[dict[str, Any]] = []
    for record in newest_records(site, name):
        for step, count in record.dead.items():
            dead[step] = dead.get(step, 0) + count
        letters += [
            {"at": record.at / 1e9, "sequence": record.sequence, **msgspec.structs.asdict(letter)}
            for letter in record.letters
        ]
    newest = site.history.errors(name)[-_SHOWN:]
    return {
        "errors": [
            {
                "at": each.at / 1e9,
                "run": each.run,
                "node": each.node,
                "kind": each.kind,
                "text": each.text,
                "traceback": each.traceback,
                "batch": each.batch,
                "sequence": each.sequence,
                "restarted": each.restarted,
            }
            for each in reversed(newest)
        ],
        "dead": dead,
        "letters": letters[: -_SHOWN - 1 : -1],
        "now": time.time(),
    }
