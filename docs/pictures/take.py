"""Takes the pictures of the page that the docs show: `make pictures`. Runs a job, feeds it, looks at every view.

    python docs/pictures/take.py [--every FOLDER]

With `--every` each view is taken light and dark, in a wide and a narrow window, into a folder, to be looked at.
"""

from __future__ import annotations

import argparse
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
VIEWS = {
    "overview": "",
    "batches": "",
    "shards": "",
    "checkpoints": "",
    "state": "?operator=spent&key=user-1",
    "cells": "",
    "errors": "",
}
"""With what each is asked for."""
HEIGHTS = {"batches": 1000, "shards": 700, "cells": 260, "jobs": 260, "errors": 600, "fleet": 390}
"""Of pictures that need more, or less, than others."""
WIDE, NARROW = {"width": 1200, "height": 760}, {"width": 420, "height": 760}
BATCHES = 15
"""How many of them the pictures show at least."""


def feed(folder: Path, begun: threading.Event, done: threading.Event) -> None:
    """Put a file of orders into the folder, and when the job has begun one every moment; some orders are odd."""
    chance = random.Random(7)
    for number in count():
        if number == 1:
            begun.wait()
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


def take_job(every: Path | None) -> None:
    """Run the job, wait for enough batches, and take its views."""
    with shown_folder() as where:
        inbox = where / "in"
        inbox.mkdir()
        begun, done = threading.Event(), threading.Event()
        threading.Thread(target=feed, args=(inbox, begun, done), daemon=True).start()
        command = [sys.executable, "-m", "tidewheel", "run", str(HERE / "shop.py"), "--ui", "--every", "1 second"]
        environment = os.environ | {"PICTURES": str(where), "TIDEWHEEL_LOCAL": f"{where}/local"}
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        ) as run:
            try:
                assert run.stderr is not None
                address = next(match[1] for line in run.stderr if (match := re.search(r"the page is at (\S+)", line)))
                threading.Thread(target=run.stderr.read, daemon=True).start()
                take(address, where, begun, every)
            finally:
                done.set()
                begun.set()
                os.killpg(run.pid, signal.SIGTERM)
                run.wait()


@contextmanager
def shown_folder() -> Iterator[Path]:
    """Give a folder whose name the pictures show."""
    where = Path(tempfile.gettempdir(), "shop")
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    try:
        yield where
    finally:
        shutil.rmtree(where, ignore_errors=True)


@contextmanager
def window_at(address: str) -> Iterator[Any]:
    """Open the page in a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        window = browser.new_page(viewport=WIDE)
        window.set_default_timeout(300_000)
        window.goto(address)
        yield window
        browser.close()


def take_fleet() -> None:
    """Take a picture of a fleet: three nodes that run in this process, as in the tests."""
    # The tests are on the path of `make pictures` alone.
    from support.fleet_nodes import Fleet, started
    from support.page_site import served

    with shown_folder() as where:
        fleet = Fleet(where)
        nodes = started(fleet, "north", "south", "west")
        for _ in range(3):
            fleet.send(2_000)
            for node in nodes:
                node.step()
        fleet.send(300)
        places = {"cells": f"{where}/cells", "inbox": f"{where}/inbox"}
        with served(f"{where}/state", **places) as page, window_at(page.url) as window:
            window.wait_for_selector("body[data-view=jobs]")
            window.set_viewport_size({**WIDE, "height": HEIGHTS["fleet"]})
            window.evaluate("location.hash = '#/orders/fleet'")
            window.wait_for_selector("body[data-view=fleet]")
            window.screenshot(path=str(HERE / "fleet.png"))
        for node in nodes:
            node.close()
        fleet.close()


def take(address: str, where: Path, begun: threading.Event, every: Path | None) -> None:
    """Take a picture of every other view; one of them dark, and one narrow."""
    with window_at(address) as window:
        window.wait_for_selector(".badge.running")
        window.evaluate("location.hash = '#/orders/batches'")
        window.locator(".timeline g").first.wait_for()
        begun.set()
        window.locator(".timeline g").nth(3).wait_for()
        change = [sys.executable, "-m", "tidewheel", "cells", "set", "large", "9000"]
        ann = os.environ | {"LOGNAME": "ann"}
        subprocess.run(
            [*change, "--job", "orders", "--state", f"{where}/state"], check=True, capture_output=True, env=ann
        )
        window.locator(".timeline g").nth(BATCHES).wait_for()
        for view in (*VIEWS, "jobs"):
            window.set_viewport_size({**WIDE, "height": HEIGHTS.get(view, WIDE["height"])})
            look(window, view, HERE / f"{view}.png")
        window.set_viewport_size(WIDE)
        window.keyboard.press("t")
        look(window, "overview", HERE / "dark.png")
        if every is not None:
            take_all(window, every, "dark")
            window.keyboard.press("t")
            take_all(window, every, "light")
        else:
            window.keyboard.press("t")
        window.set_viewport_size(NARROW)
        look(window, "overview", HERE / "narrow.png")


def take_all(window: Any, every: Path, theme: str) -> None:
    """Take every view, wide and narrow."""
    for size in (WIDE, NARROW):
        window.set_viewport_size(size)
        for view in (*VIEWS, "jobs"):
            look(window, view, every / f"{view}-{theme}-{size['width']}.png", whole=True)
    window.set_viewport_size(WIDE)


def look(window: Any, view: str, path: Path, *, whole: bool = False) -> None:
    """Go to a view, and take a picture of it; `whole`: also of what is below the window's edge."""
    window.evaluate(f"location.hash = '#/{'' if view == 'jobs' else f'orders/{view}{VIEWS[view]}'}'")
    window.wait_for_selector(f"body[data-view={view}]")
    time.sleep(1)  # For what comes by itself: figures of the newest commit, and the charts' own drawing.
    window.screenshot(path=str(path), full_page=whole)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=Path, metavar="FOLDER")
    chosen = parser.parse_args().every
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
    take_fleet()
    take_job(chosen)
