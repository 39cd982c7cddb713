"""The page's application: static files, the views as JSON, new commits as server-sent events, and changes."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Any

import msgspec
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from tidewheel._checkpoint.tools.text import shown
from tidewheel._ui.changes import Changes, Wanted
from tidewheel._ui.guard import Guard, Guarded
from tidewheel._ui.site import Site
from tidewheel._ui.views import batches, cells, checkpoints, errors, fleet, jobs, shards, state
from tidewheel.errors import ConfigError, NotFound, TidewheelError

_LOG = logging.getLogger(__name__)
_STATIC = files("tidewheel._ui") / "static"
_POLL_SECONDS = 1.0
_LARGEST_BODY = 1 << 20

View = Callable[[Site, dict[str, str]], Any]


def _at(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdigit() else text or None


def _number(text: str | None) -> float | None:
    try:
        return None if not text else float(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a number") from None


def _sequence(text: str | None) -> int | None:
    if text and not text.isdigit():
        raise ConfigError(f"{text!r} is not the number of a checkpoint")
    return int(text) if text else None


VIEWS: dict[str, View] = {
    "jobs": lambda site, asked: jobs.jobs(site),
    "job": lambda site, asked: jobs.overview(site, asked["job"]),
    "batches": lambda site, asked: batches.batches(
        site, asked["job"], _number(asked.get("since")), _number(asked.get("until"))
    ),
    "shards": lambda site, asked: shards.shards(site, asked["job"]),
    "checkpoints": lambda site, asked: checkpoints.checkpoints(site, asked["job"]),
    "checkpoint": lambda site, asked: checkpoints.checkpoint(site, asked["job"], _at(asked.get("at"))),
    "diff": lambda site, asked: checkpoints.changes(site, asked["job"], _at(asked["before"]), _at(asked["after"])),
    "verify": lambda site, asked: checkpoints.verification(site, asked["job"], _sequence(asked.get("at"))),
    "operators": lambda site, asked: state.operators(site, asked["job"], _at(asked.get("at"))),
    "browse": lambda site, asked: state.browse(
        site, asked["job"], asked["operator"], asked.get("prefix", ""), _at(asked.get("at"))
    ),
    "key": lambda site, asked: state.look_up(site, asked["job"], asked["operator"], asked["key"], _at(asked.get("at"))),
    "past": lambda site, asked: state.past(site, asked["job"], asked["operator"], asked["key"]),
    "cells": lambda site, asked: cells.cells(site, asked["job"]),
    "fleet": lambda site, asked: fleet.fleet(site, asked["job"]),
    "errors": lambda site, asked: errors.errors(site, asked["job"]),
}
"""What can be asked for, by its name below `/api/`. The arguments are those of the query."""


def make_app(site: Site, guard: Guard) -> ASGIApp:
    """Return the application of a page."""
    changes = Changes(site)

    async def index(request: Request) -> Response:
        return FileResponse(str(_STATIC / "index.html"))

    async def about(request: Request) -> Response:
        return _json({"changes": guard.changes, "state": site.store.url})

    async def view(request: Request) -> Response:
        name = request.path_params["view"]
        if name not in VIEWS:
            return _json({"error": f"there is no view {name!r}"}, 404)
        return await _answered(functools.partial(VIEWS[name], site, dict(request.query_params)))

    async def events(request: Request) -> Response:
        stream = _news(site, request.query_params.get("job"), request.is_disconnected)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def change(request: Request) -> Response:
        body = await request.body()
        if len(body) > _LARGEST_BODY:
            return _json({"error": "the request is too large"}, 413)
        try:
            wanted = msgspec.json.decode(body, type=Wanted)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _json({"error": f"the change was not understood: {error}"}, 400)
        return await _answered(functools.partial(changes.ask, wanted))

    async def confirm(request: Request) -> Response:
        return await _answered(functools.partial(changes.confirm, request.path_params["code"]))

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/api/about", about),
            Route("/api/events", events),
            Route("/api/changes", change, methods=["POST"]),
            Route("/api/changes/{code}", confirm, methods=["POST"]),
            Route("/api/{view}", view),
            Mount("/static", StaticFiles(packages=[("tidewheel._ui", "static")])),
        ]
    )
    return Guarded(app, guard)


async def _answered(make: Callable[[], Any]) -> Response:
    try:
        return _json(await to_thread.run_sync(make))
    except NotFound as error:
        return _json({"error": str(error)}, 404)
    except TidewheelError as error:
        return _json({"error": str(error)}, 409)
    except KeyError as error:
        return _json({"error": f"the argument {error.args[0]!r} is missing"}, 400)
    except Exception as error:
        _LOG.exception("a view of the page failed")
        return _json({"error": f"the page failed, not the job: {type(error).__name__}: {error}"}, 500)


def _json(value: Any, status: int = 200) -> Response:
    return Response(shown(value), status, media_type="application/json")


async def _news(site: Site, job: str | None, gone: Callable[[], Any]) -> AsyncIterator[str]:
    """Yield events until the reader is gone: what has changed, as often as it changes.

    `jobs` has the list of jobs; for one job, `job` has its summary, and `commits` the commits that are new.
    """
    last: dict[str, str] = {}
    after: float | None = None
    while not await gone():
        news: list[tuple[str, Any]] = []
        try:
            if job is None:
                news.append(("jobs", await to_thread.run_sync(jobs.jobs, site)))
            else:
                news.append(("job", await to_thread.run_sync(jobs.overview, site, job)))
                if after is None:
                    newest = await to_thread.run_sync(site.history.latest, job)
                    after = newest.at / 1e9 if newest else 0.0
                fresh = await to_thread.run_sync(batches.bars_after, site, job, after)
                if fresh:
                    after = max(bar["at"] for bar in fresh)
                    news.append(("commits", fresh))
        except TidewheelError as error:
            news.append(("trouble", {"error": str(error)}))
        for kind, value in news:
            text = shown(value)
            # The time of day alone is no news.
            compared = shown({**value, "now": 0}) if isinstance(value, dict) else text
            if kind == "commits" or last.get(kind) != compared:
                last[kind] = compared
                yield f"event: {kind}\ndata: {text}\n\n"
        yield ": \n\n"
        await asyncio.sleep(_POLL_SECONDS)
