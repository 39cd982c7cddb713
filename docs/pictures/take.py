"""Takes the pictures of the page that the docs show: `make pictures`. Runs a job, feeds it, looks at every view."""

from __future__ import annotations

import datetime
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
VIEWS = ("overview", "batches", "shards", "checkpoints", "state", "cells", "errors")
BATCHES = 15
"""How many of them the pictures show at least."""


def feed(folder: Path, done: threading.Event) -> None:
    """Put a file of orders into the folder every moment, some of them odd."""
    chance = random.Random(7)
    for number in count():
        now = datetime.datetime.now(datetime.UTC)
        lines = []
        for _ in range(2_000):
            user = f"user-{int(chance.paretovariate(0.6)) % 5_000}"
            at = now - datetime.timedelta(seconds=chance.random() * 6)
            cents = -1 if chance.random() < 0.0005 else chance.randrange(1, 2_000)
            lines.append(json.dumps({"user": user, "cents": cents, "at": at.isoformat()}))
        (folder.parent / "next.json").write_text("\n".join(lines) + "\n")
        (folder.parent / "next.json").rename(folder / f"{number}.json")
        if done.wait(0.7):
            return


def main() -> None:
    """Run the job, wait for enough batches, and take every view, light and dark."""
    with tempfile.TemporaryDirectory() as where:
        inbox = Path(where) / "in"
        inbox.mkdir()
        done = threading.Event()
        threading.Thread(target=feed, args=(inbox, done), daemon=True).start()
        command = [sys.executable, "-m", "tidewheel", "run", str(HERE / "shop.py"), "--ui", "--trigger", "1 second"]
        environment = os.environ | {"PICTURES": where, "TIDEWHEEL_LOCAL": f"{where}/local"}
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        ) as run:
            try:
                assert run.stderr is not None
                address = next(match[1] for line in run.stderr if (match := re.search(r"the page is at (\S+)", line)))
                threading.Thread(target=run.stderr.read, daemon=True).start()
                take(address)
            finally:
                done.set()
                os.killpg(run.pid, signal.SIGTERM)
                run.wait()


@contextmanager
def window_at(address: str) -> Iterator[Any]:
    """Open the page in a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1200, "height": 760})
        window.set_default_timeout(300_000)
        window.goto(address)
        yield window
        browser.close()


def take_fleet() -> None:
    """Take a picture of a fleet: three nodes that run in this process, as in the tests."""
    # The tests are on the path of `make pictures` alone.
    from fleet_nodes import Fleet, started
    from page_site import served

    with tempfile.TemporaryDirectory() as where:
        fleet = Fleet(Path(where))
        nodes = started(fleet, "north", "south", "west")
        for _ in range(3):
            fleet.send(2_000)
            for node in nodes:
                node.step()
        fleet.send(300)
        places = {"cells": f"{where}/cells", "inbox": f"{where}/inbox"}
        with served(f"{where}/state", **places) as page, window_at(page.url) as window:
            window.wait_for_selector("body[data-view=jobs]")
            window.evaluate("location.hash = '#/orders/fleet'")
            window.wait_for_selector("body[data-view=fleet]")
            window.screenshot(path=str(HERE / "fleet.png"))
        for node in nodes:
            node.close()
        fleet.close()


def take(address: str) -> None:
    """Take a picture of every other view."""
    with window_at(address) as window:
        window.wait_for_selector(".badge.running")
        window.evaluate("location.hash = '#/orders/batches'")
        window.locator(".timeline g").nth(BATCHES).wait_for()
        for view in VIEWS:
            window.evaluate(f"location.hash = '#/orders/{view}'")
            window.wait_for_selector(f"body[data-view={view}]")
            time.sleep(1)
            window.screenshot(path=str(HERE / f"{view}.png"))
        window.evaluate("location.hash = '#/'")
        window.wait_for_selector("body[data-view=jobs]")
        window.screenshot(path=str(HERE / "jobs.png"))
        window.evaluate("location.hash = '#/orders/overview'")
        window.wait_for_selector("body[data-view=overview]")
        window.keyboard.press("t")
        time.sleep(1)
        window.screenshot(path=str(HERE / "dark.png"))


if __name__ == "__main__":
    take_fleet()
    main()
