"""The page in a real browser: every view of a job, also hostile, also large; new batches without a reload; changes."""

from __future__ import annotations

import pytest

from page_site import HOSTILE, TOKEN, browsing, go, served, stored_job, write_history
from tidewheel import StoredJob

VIEWS = ("overview", "batches", "shards", "checkpoints", "state", "cells", "fleet", "errors")


@pytest.fixture
def url(tmp_path):
    stored_job(f"{tmp_path}/state")
    write_history(f"{tmp_path}/state")
    return f"{tmp_path}/state"


def test_every_view_of_a_job_that_is_dead_shows_hostile_data_as_text(url):
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
