"""The page in a real browser: every view of a job, also with hostile and large data; new batches without a reload; changes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from support.fleet_nodes import Fleet, started
from support.page_site import HOSTILE, TOKEN, browsing, go, replayable_job, served, stored_job, write_history
from tidewheel import StoredJob

VIEWS = ("overview", "batches", "shards", "checkpoints", "state", "cells", "fleet", "errors")


@pytest.fixture
def url(tmp_path):
    stored_job(f"{tmp_path}/state")
    write_history(f"{tmp_path}/state")
    return f"{tmp_path}/state"


def test_every_view_of_a_dead_job_shows_hostile_data_as_text(url):
    with served(url) as page, browsing() as window:
        window.goto(page.url)
        window.wait_for_selector("body[data-view=jobs]")
        assert "clicks" in window.inner_text("main")
        for number, view in enumerate(VIEWS, 1):
            go(window, "clicks", view)
            assert window.locator("main .trouble").count() == (view == "overview"), "the overview tells the last error"
            assert window.title().startswith("clicks"), f"{view} ran what it should show"
            assert window.locator("nav a[aria-current]").inner_text().lower() == view
            window.keyboard.press(str(number))
        assert HOSTILE in window.inner_text("main"), "the error is told, as text"
        go(window, "clicks", "overview")
        assert "· 'ada' 50 %" in window.text_content("svg.graph"), "a hot key stands at its step, without a click"
        go(window, "clicks", "state")
        assert HOSTILE in window.inner_text("main"), "the key is shown, as text"
        window.fill("#search", "ada")
        window.click("#look")
        window.wait_for_selector("text=at the kept checkpoints")
        go(window, "clicks", "checkpoints")
        window.click("#verify")
        window.wait_for_selector("text=all good")
        window.keyboard.press("t")
        assert window.evaluate("document.documentElement.dataset.theme") == "dark"
        window.keyboard.press("g")
        window.wait_for_selector("body[data-view=jobs]")


def test_a_value_is_clicked_to_see_the_records_that_made_it(tmp_path):
    url = f"{tmp_path}/state"
    program = replayable_job(url)
    with served(url, programs={"spent": program}) as page, browsing() as window:
        window.goto(page.url)
        window.wait_for_selector("body[data-view=jobs]")
        go(window, "spent", "state")
        window.click("main td a:text-is('ada')")
        window.click("#answer a.at-commit:has-text('-895') >> nth=-1")
        window.wait_for_selector("text=records in the batch of commit")
        text = window.inner_text("#records")
        assert "dropped by step 'paid'" in text
        assert "orders, item 3" in text
        assert "-900" in text


def test_a_cell_is_changed_after_a_second_yes_and_not_without_the_token(url):
    with served(url, changes=True) as page, browsing() as window:
        window.goto(f"http://127.0.0.1:{page.port}/")
        window.wait_for_selector("body[data-view=jobs]")
        go(window, "clicks", "cells")
        assert window.locator("#set-threshold").count() == 0, "who lacks the token is not offered a change"
        refused = window.evaluate(
            'fetch(\'/api/changes\', {method: \'POST\', body: \'{"job": "clicks", "what": "stop"}\'}).then(a => a.status)'
        )
        assert refused == 401
        window.goto("about:blank")
        window.goto(page.url)
        window.wait_for_selector("body[data-view=jobs]")
        assert TOKEN not in window.url
        go(window, "clicks", "cells")
        window.fill("input[aria-label='new value of threshold']", "9")
        window.click("#set-threshold")
        window.wait_for_selector("dialog[open]")
        window.click("dialog button:not(.primary)")
        assert "never written" in window.inner_text("main")
        window.fill("input[aria-label='new value of threshold']", "9")
        window.click("#set-threshold")
        window.click("#sure")
        window.wait_for_selector("text=threshold is version 1")
        go(window, "clicks", "cells")
        assert "never written" not in window.inner_text("main")
        assert StoredJob("clicks", state=url).list()


def test_a_thousand_operators_and_4096_shards_are_drawn(tmp_path):
    url = f"{tmp_path}/state"
    stored_job(url, n_shards=4096)
    write_history(url, commits=1000, n_shards=4096, operators=1000)
    with served(url) as page, browsing() as window:
        window.goto(page.url)
        window.wait_for_selector("body[data-view=jobs]")
        go(window, "clicks", "overview")
        assert window.locator(".graph .node").count() == 1004
        go(window, "clicks", "shards")
        assert "4,096" in window.inner_text("main")
        assert window.evaluate("document.querySelector('canvas').height") > 100
        go(window, "clicks", "batches")
        assert "1,000 commits" in window.inner_text("main")


PROGRAM = """
from tidewheel import Job, sinks, sources

job = Job("live", state={state!r})
lines = job.source("in", sources.files({inbox!r}, format="json", schema="user string, cents long"))
counted = lines.key_by("by-user", "user").stateful_map("count", lambda key, row, n: (n + 1, n + 1), default=0)
counted.sink("out", sinks.discard())
"""


def test_the_page_shows_new_batches_live_and_keeps_a_killed_job(tmp_path):
    state, inbox, program = f"{tmp_path}/state", tmp_path / "in", tmp_path / "live.py"
    inbox.mkdir()
    program.write_text(PROGRAM.format(state=state, inbox=str(inbox)))

    def send(number):
        (tmp_path / "next.json").write_text(f'{{"user": "u{number}", "cents": 1}}\n' * 10)
        (tmp_path / "next.json").rename(inbox / f"{number}.json")

    send(0)
    command = [sys.executable, "-m", "tidewheel", "run", str(program), "--ui", "--master", "local[1]"]
    environment = os.environ | {"TIDEWHEEL_LOCAL": f"{tmp_path}/local"}
    with (
        subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        ) as process,
        browsing() as window,
    ):
        try:
            address = next(match[1] for line in process.stderr if (match := re.search(r"the page is at (\S+)", line)))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            window.goto(address)
            window.wait_for_selector("body[data-view=jobs]")
            window.wait_for_selector(".badge.running")
            go(window, "live", "batches")
            batches = window.locator("tbody tr", has=window.get_by_role("cell", name="batch", exact=True))
            batches.first.wait_for()
            window.evaluate("window.stayed = true")
            send(1)
            batches.nth(1).wait_for()
            assert window.evaluate("window.stayed"), "the page was not loaded again"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    with served(state) as page, browsing() as window:
        window.goto(page.url)
        window.wait_for_selector("body[data-view=jobs]")
        window.wait_for_selector(".badge.killed")
        for view in VIEWS:
            go(window, "live", view)
            assert window.locator("main .trouble").count() == 0
        go(window, "live", "overview")
        assert window.locator(".graph .node").count() == 4
        go(window, "live", "state")
        assert "u1" in window.inner_text("main")


def test_a_fleet_shows_its_nodes_and_who_holds_which_shard(tmp_path):
    fleet = Fleet(tmp_path)
    try:
        nodes = started(fleet, "north", "south")
        fleet.send(100)
        for node in nodes:
            node.step()
        places = {"cells": f"{tmp_path}/cells", "inbox": f"{tmp_path}/inbox"}
        with served(f"{tmp_path}/state", **places) as page, browsing() as window:
            window.goto(page.url)
            window.wait_for_selector(".badge.fleet")
            for view in VIEWS:
                go(window, "orders", view)
                assert window.locator("main .trouble").count() == 0, window.inner_text("main")
            go(window, "orders", "fleet")
            text = window.inner_text("main")
            assert all(word in text for word in ("north", "south", "member", "8"))
            go(window, "orders", "shards")
            window.select_option("select", "holders")
        with served(f"{tmp_path}/state") as page, browsing() as window:
            window.goto(page.url)
            window.wait_for_selector(".badge.fleet")
            go(window, "orders", "fleet")
            assert "--cells and --inbox" in window.inner_text("main"), "what is missing is said"
    finally:
        for node in nodes:
            node.close()
        fleet.close()
