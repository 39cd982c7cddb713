"""The state of a job: browse a step's keys, look one up, and show its value at each kept checkpoint."""

from __future__ import annotations

import time
from typing import Any

from tidewheel._checkpoint.names import CHAIN
from tidewheel._checkpoint.tools.key_check import either
from tidewheel._checkpoint.tools.savepoint import At, find
from tidewheel._checkpoint.tools.state_reader import Found, StateReader
from tidewheel._storage.chain import Chain
from tidewheel._ui.site import JobSite, Site
from tidewheel._ui.traces import Asked
from tidewheel.errors import TidewheelError

BROWSED = 100
PAST = 50
"""The number of newest checkpoints at which a key is looked up."""
_SECONDS = 2.0
"""The time limit of a search for keys: a step may have billions, and a rare prefix matches few."""


def steps(site: Site, name: str, at: At = None) -> list[dict[str, Any]]:
    """Return the steps that have state."""
    found = _manifest(site.job(name), at)
    return [{"name": step, "kind": info.kind, "codec": info.codec} for step, info in sorted(found.operators.items())]


def browse(site: Site, name: str, step: str, prefix: str = "", at: At = None) -> dict[str, Any]:
    """Return the first keys of a step that start with a prefix, with their values, as found within a time limit."""
    reader = StateReader(site.store, _manifest(site.job(name), at))
    codec = reader.codec(step)
    deadline = time.monotonic() + _SECONDS
    rows: list[dict[str, Any]] = []
    complete = True
    for key, raw in reader.raw(step, prefix):
        if len(rows) >= BROWSED or time.monotonic() > deadline:
            complete = False
            break
        rows.append({"key": key, "value": codec.decode(raw)})
    return {"sequence": reader.manifest.sequence, "rows": rows, "complete": complete}


def look_up(site: Site, name: str, step: str, text: str, at: At = None) -> dict[str, Any]:
    """Return a key's value, now or at a checkpoint. The key is text or JSON."""
    answer = _get(site, _manifest(site.job(name), at), step, text)
    return {"found": answer.found, "key": answer.key, "value": answer.value, "sequence": answer.sequence}


def past(site: Site, name: str, step: str, text: str) -> list[dict[str, Any]]:
    """Return a key's value at each of the newest kept checkpoints, newest first; a damaged one shows its error."""
    own = site.job(name).checkpoints()
    rows: list[dict[str, Any]] = []
    for number in reversed(Chain(own.folder, CHAIN).numbers()[-PAST:]):
        try:
            found = own.load(number)
            answer = _get(site, found, step, text)
            rows.append(
                {
                    "sequence": number,
                    "created": found.id.created_at / 1e9,
                    "found": answer.found,
                    "value": answer.value,
                }
            )
        except TidewheelError as error:
            rows.append({"sequence": number, "error": str(error)})
    return rows


def records(site: Site, name: str, step: str, text: str, sequence: int) -> dict[str, Any]:
    """Return the messages of a key in the batch of a commit, or that the batch is still running."""

    def key() -> Any:
        return _get(site, site.job(name).whole(), step, text).key

    found = site.traces.messages(Asked(name, sequence, step, text), key)
    return {"running": True} if found is None else {"records": [message.described() for message in found]}


def _get(site: Site, manifest: Any, step: str, text: str) -> Found:
    reader = StateReader(site.store, manifest)
    return either(lambda key: reader.get(step, key), text)


def _manifest(job: JobSite, at: At) -> Any:
    return job.whole() if at is None else find(job.checkpoints(), at)
