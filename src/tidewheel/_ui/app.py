"""The page's application: static files, the views as JSON, new commits as server-sent events, and changes."""

from __future__ import annotations

import logging
import mimetypes
import threading
from collections.abc import Callable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from math import isfinite
from typing import Any

import msgspec

from tidewheel._checkpoint.tools.savepoint import At, at_of
from tidewheel._checkpoint.tools.text import shown
from tidewheel._core.http_endpoint import Answer, Request, failure
from tidewheel._core.http_guard import API, Guard
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._ui.changes import Changes, Wanted
from tidewheel._ui.site import Site
from tidewheel._ui.views import batches, cells, checkpoints, errors, fleet, jobs, shards, state
from tidewheel.errors import ConfigError, NotFound, TidewheelError

_LOG = logging.getLogger(__name__)
_STATIC = files("tidewheel._ui") / "static"
_POLL_SECONDS = 1.0
_KINDS = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
}

View = Callable[[Site, dict[str, str]], Any]


def _at(text: str | None) -> At:
    return at_of(text or None)


def _number(text: str | None) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise ConfigError(f"{text!r} is not a number")
    return number


def _sequence(text: str | None) -> int | None:
    at = _at(text)
    if isinstance(at, str):
        raise ConfigError(f"{text!r} is not the number of a checkpoint")
    return at


VIEWS: dict[str, View] = {
    "jobs": lambda site, query: jobs.jobs(site),
    "job": lambda site, query: jobs.overview(site, query["job"]),
    "batches": lambda site, query: batches.batches(
        site, query["job"], _number(query.get("since")), _number(query.get("until"))
    ),
    "shards": lambda site, query: shards.shards(site, query["job"]),
    "checkpoints": lambda site, query: checkpoints.checkpoints(site, query["job"]),
    "checkpoint": lambda site, query: checkpoints.checkpoint(site, query["job"], _at(query.get("at"))),
    "diff": lambda site, query: checkpoints.changes(site, query["job"], _at(query["before"]), _at(query["after"])),
    "verify": lambda site, query: checkpoints.verification(site, query["job"], _sequence(query.get("at"))),
    "steps": lambda site, query: state.steps(site, query["job"], _at(query.get("at"))),
    "browse": lambda site, query: state.browse(
        site, query["job"], query["step"], query.get("prefix", ""), _at(query.get("at"))
    ),
    "key": lambda site, query: state.look_up(site, query["job"], query["step"], query["key"], _at(query.get("at"))),
    "past": lambda site, query: state.past(site, query["job"], query["step"], query["key"]),
    "records": lambda site, query: state.records(
        site, query["job"], query["step"], query["key"], _sequence(query["at"]) or 0
    ),
    "cells": lambda site, query: cells.cells(site, query["job"]),
    "fleet": lambda site, query: fleet.fleet(site, query["job"]),
    "errors": lambda site, query: errors.errors(site, query["job"]),
}
"""The views by name below `/api/`. The arguments are those of the query."""


class PageApp:
    """Answers the requests to one page."""

    def __init__(self, site: Site, guard: Guard) -> None:
        """Use the jobs to show, and the access rules."""
        self._site, self._guard, self._changes = site, guard, Changes(site)
        self._static = dict(_static_files(_STATIC, "/static"))
        self._closed = threading.Event()

    def __call__(self, request: Request) -> Answer:
        """Return the answer to a request that the guard has accepted."""
        path = request.path
        if not path.startswith(API):
            found = self._static.get("/static/index.html" if path == "/" else path)
            if found is None:
                return failure(404, "there is no such page")
            return Answer(200, _kind(found.name), found.read_bytes())
        name = path.removeprefix(API)
        if request.method not in ("GET", "HEAD"):
            return self._change(name, request.body)
        if name == "about":
            return _json({"changes": self._guard.changes, "state": self._site.store.url})
        if name == "events":
            news = _news(self._site, request.arguments.get("job"), self._closed)
            return Answer(200, "text/event-stream", news)
        if name not in VIEWS:
            return failure(404, f"there is no view {name!r}")
        return _answered(lambda: VIEWS[name](self._site, request.arguments))

    def _change(self, name: str, body: bytes) -> Answer:
        kind, _, code = name.partition("/")
        if kind != "changes":
            return failure(405, "only reading is done here")
        if code:
            return _answered(lambda: self._changes.confirm(code))
        try:
            wanted = msgspec.json.decode(body, type=Wanted)
        except UNDECODABLE as error:
            return failure(400, f"the change was not understood: {error}")
        return _answered(lambda: self._changes.ask(wanted))

    def close(self) -> None:
        """End the streams of events."""
        self._closed.set()


def _static_files(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the files of the page by path: nothing else can be requested."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _static_files(entry, f"{path}/{entry.name}")
        else:
            yield f"{path}/{entry.name}", entry


def _kind(name: str) -> str:
    suffix = f".{name.rpartition('.')[2]}"
    return _KINDS.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


def _answered(make: Callable[[], Any]) -> Answer:
    try:
        return _json(make())
    except NotFound as error:
        return failure(404, str(error))
    except TidewheelError as error:
        return failure(409, str(error))
    except KeyError as error:
        return failure(400, f"the argument {error.args[0]!r} is missing")
    except Exception as error:
        _LOG.exception("a view of the page failed")
        return failure(500, f"the page failed, not the job: {type(error).__name__}: {error}")


def _json(value: Any) -> Answer:
    return Answer(200, "application/json", shown(value).encode())


def _news(site: Site, job: str | None, closed: threading.Event) -> Iterator[bytes]:
    """Yield events until the page is closed, one for each change.

    `jobs` has the list of jobs; for one job, `job` has its summary, and `commits` the new commits.
    """
    last: dict[str, str] = {}
    after: float | None = None
    while not closed.is_set():
        news: list[tuple[str, Any]] = []
        try:
            if job is None:
                news.append(("jobs", jobs.jobs(site)))
            else:
                news.append(("job", jobs.overview(site, job)))
                if after is None:
                    newest = site.history.latest(job)
                    after = newest.at / 1e9 if newest else 0.0
                fresh = batches.bars_after(site, job, after)
                if fresh:
                    after = max(bar["at"] for bar in fresh)
                    news.append(("commits", fresh))
        except TidewheelError as error:
            news.append(("trouble", {"error": str(error)}))
        for kind, value in news:
            text = shown(value)
            # A change of only the time of day is not reported.
            compared = shown({**value, "now": 0}) if isinstance(value, dict) else text
            if kind == "commits" or last.get(kind) != compared:
                last[kind] = compared
                yield f"event: {kind}\ndata: {text}\n\n".encode()
        yield b": \n\n"
        closed.wait(_POLL_SECONDS)
