"""A state URL with a job, its history and a page for it, without Spark; and the browser for the page."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from support.internals import open_store
from support.replayed import ReadingRun
from support.waiting import SOON
from tidewheel import Job, sinks, sources
from tidewheel._core.http_guard import guard_for
from tidewheel._observe.history_writer import HistoryWriter
from tidewheel._observe.records import (
    Behind,
    CommitRecord,
    DeadLetter,
    ErrorRecord,
    Published,
    RunRecord,
    StepRecord,
    Stored,
)
from tidewheel._ui.server import PageServer
from tidewheel._ui.site import Site
from tidewheel.testing import run_in_memory

TOKEN = "token-of-the-test"
HOSTILE = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"
"""A key, an error and a value that a page must show as text."""


def stored_job(url: str, name: str = "clicks", n_shards: int = 64) -> Job:
    """Run a job to its end, so that its state is at the URL: it counts clicks by user."""
    job = Job(name, state=url, n_shards=n_shards)
    job.cell("threshold", int, default=3)
    users = ["ada", "bob", "ada", HOSTILE]
    clicks = job.source("clicks", sources.iterable([{"user": user, "cents": 7} for user in users]))
    counted = clicks.key_by("by-user", "user").stateful_map("count", lambda key, row, n: (n + 1, n + 1), default=0)
    counted.sink("out", sinks.collect())
    run_in_memory(job, state=url)
    return job


def replayable_job(url: str) -> Job:
    """Run a job whose batches can run again; return its program. It sums cents by user, and drops an order of zero."""
    orders = [{"user": user, "cents": cents} for user, cents in (("ada", 5), (HOSTILE, 1), ("ada", 0), ("ada", -900))]
    job = Job("spent", state=url, n_shards=4, keep=100)
    paid = job.source("orders", sources.iterable(orders, batch_size=2)).filter("paid", lambda order: order.cents != 0)
    totals = paid.key_by("by-user", "user").stateful_map(
        "total", lambda user, order, total: (total + order.cents, total + order.cents), default=0
    )
    totals.sink("out", sinks.collect())
    with ReadingRun(job) as run:
        run.read_all(random.Random(1), 1)
    return job


def write_history(url: str, commits: int = 30, name: str = "clicks", n_shards: int = 64, operators: int = 0) -> None:
    """Give a job a history of so many commits, a second apart, with an error. `steps` adds more of them in a chain."""
    now = time.time_ns()
    graph = [
        StepRecord("clicks", "source", 0),
        StepRecord("by-user", "key_by", 0, False, (("clicks", 0),)),
        StepRecord("count", "stateful_map", 1, True, (("by-user", 0),)),
    ]
    for number in range(operators):
        graph.append(StepRecord(f"step-{number}", "map", 1, False, ((graph[-1].name, 0),)))
    graph.append(StepRecord("out", "sink", 1, False, ((graph[-1].name, 0),)))
    writer = HistoryWriter(open_store(url), name, "run1")
    writer.started(
        RunRecord("run1", now - commits * 10**9, host="host-a", pid=7, n_shards=n_shards, steps=tuple(graph))
    )
    for number in range(commits):
        writer.committed(
            CommitRecord(
                number + 2,
                now - (commits - number) * 10**9,
                run="run1",
                batch=number,
                parallelism=2,
                tasks=2,
                seconds=0.5,
                phases={"offsets": 0.01, "read": 0.1, "tasks": 0.3, "commit": 0.05, "publish": 0.02},
                rows=100,
                rows_in={"clicks": 100, "by-user": 100, "count": 100},
                rows_out={"clicks": 100, "by-user": 100, "count": 100},
                busy={"count": 0.2, "by-user": 0.05},
                dead={"count": 1} if number % 10 == 0 else {},
                changed={"count": 3},
                stored={"count": Stored(3, 300)},
                shards={"count": {shard: Stored(shard + 1, 10 * shard) for shard in range(n_shards)}}
                if number == commits - 1
                else {},
                epoch=now - (commits - number + 40) * 10**9,
                behind={"clicks": {"0": Behind(5, 1.5)}},
                delta_bytes=1000,
                hot={"by-user": {"'ada'": 0.5}},
                deltas=3,
                published={"out": Published(100, 0.02)},
                cells={"threshold": 0},
                events=100 * number,
                letters=(DeadLetter("count", HOSTILE, f'{{"user": "{HOSTILE}"}}', "ValueError: odd", "fail.py:6"),)
                if number == commits - 1
                else (),
            )
        )
    writer.failed(ErrorRecord(now, "run1", f"step 'count': {HOSTILE}", "StepError", f"Traceback\n  {HOSTILE}"))
    writer.close()


@contextlib.contextmanager
def served(url: str, *, changes: bool = False, **places: Any) -> Iterator[PageServer]:
    """Serve the page of a state URL, at a free port."""
    with PageServer(Site(url, **places), guard_for("127.0.0.1", changes=changes, token=TOKEN), port=0) as page:
        yield page


def asked(page: PageServer, path: str, *, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Ask a page with its token; return the status and the answer, decoded if it is JSON. With a body it is a POST."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", **headers}
    request = urllib.request.Request(f"http://127.0.0.1:{page.port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, text, kind = answer.status, answer.read(), answer.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        status, text, kind = error.code, error.read(), error.headers["Content-Type"]
    return status, json.loads(text) if kind == "application/json" else text.decode()


def chromium() -> str:
    """Return where the browser is; without one the test is skipped, and says how to get one."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no browser: the page's tests need Chromium; `make browser` installs Debian's")
    return path


@contextlib.contextmanager
def browsing() -> Iterator[Any]:
    """Open a browser window. When it is left, whatever the page complained of fails the test."""
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1360, "height": 900})
        window.set_default_timeout(SOON * 1000)
        window.on("pageerror", lambda error: complaints.append(str(error)))
        window.on("request", lambda request: complaints.append(request.url) if _foreign(request.url) else None)
        try:
            yield window
        finally:
            browser.close()
    assert not complaints


def _foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "data:"))


def go(window: Any, job: str | None, view: str = "jobs") -> None:
    """Show a view and wait until it is drawn."""
    window.evaluate("document.body.dataset.view = ''")
    place = f"#/{job}/{view}" if job else "#/"
    # The same address again is no change of it, and is asked for; two events would draw the view twice.
    window.evaluate(
        "place => location.hash === place ? dispatchEvent(new Event('hashchange')) : (location.hash = place)", place
    )
    window.wait_for_selector(f"body[data-view={view}]")
