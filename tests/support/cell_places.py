"""Places of cells: every backend with one interface, so that each test runs on all of them.

Tests share `place`, which is never stopped. Each test gets its own `mortal_place`, with `kill` and `restart`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from servers.stores import Etcd, SeaweedFS, running_etcd, running_seaweedfs
from tidewheel import cells
from tidewheel._cells.backends import memory

BACKENDS = ("memory", "file", "s3", "etcd", "etcd-3")


class Place:
    """One backend. Connections opened through it are closed with it."""

    def __init__(self, url: str, crowd: int, stack: contextlib.ExitStack) -> None:
        self.url = url
        self.crowd = crowd
        """How many operations are many here: object stores take their time."""
        self._stack = stack
        self.kill: Callable[[], None] = lambda: pytest.fail("this place is shared")
        self.restart: Callable[[], None] = lambda: pytest.fail("this place is shared")

    def open(self, **options: Any) -> cells.Connection:
        return self._stack.enter_context(cells.open(self.url, **options))


def in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """Run all at once, each in its own thread; return what they return, or raise what one raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


@pytest.fixture(scope="session")
def etcd_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One three-member etcd for the whole session; do not kill it."""
    with running_etcd(tmp_path_factory.mktemp("etcd3"), members=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def mortal_seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """An S3 server that tests kill and start again, one after the other: it takes seconds to make a new one."""
    with running_seaweedfs(tmp_path_factory.mktemp("weed") / "mortal") as server:
        yield server


def exchange_names(one: str, other: str) -> None:
    """Swap two names at once, so that nobody finds neither."""
    here, exchange = -100, 2
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


@pytest.fixture(params=[backend for backend in BACKENDS if backend != "etcd"])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Place]:
    """A fresh place on each backend; etcd has three members here, and one or three where they are killed."""
    fresh = uuid.uuid4().hex
    with contextlib.ExitStack() as stack:
        if request.param == "memory":
            yield Place(f"memory:{fresh}", 200, stack)
        elif request.param == "file":
            yield Place(f"file://{tmp_path}/cells", 200, stack)
        elif request.param == "s3":
            yield Place(request.getfixturevalue("seaweedfs").url(fresh) + "&poll_s=0.05", 20, stack)
        else:
            yield Place(request.getfixturevalue("etcd_3").url(fresh), 100, stack)


@pytest.fixture(params=BACKENDS)
def mortal_place(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Place]:
    """A place of one's own on each backend, which can be killed and started again."""
    with contextlib.ExitStack() as stack:
        if request.param == "memory":
            place = Place(f"memory:{uuid.uuid4()}", 200, stack)
            away = contextlib.ExitStack()
            place.kill = lambda: away.enter_context(memory.outage(place.url))
            place.restart = away.close
        elif request.param == "file":
            folder, away = f"{tmp_path}/cells", f"{tmp_path}/away"
            Path(away).write_text("stands in the folder's place while its disk is away")
            place = Place(f"file://{folder}", 200, stack)
            place.kill = place.restart = lambda: exchange_names(folder, away)
        elif request.param == "s3":
            weed = request.getfixturevalue("mortal_seaweedfs")
            if not weed.is_running:
                weed.start()
            place = Place(weed.url(uuid.uuid4().hex) + "&poll_s=0.05&retry_s=0.5", 20, stack)
            place.kill, place.restart = weed.kill, weed.start
        else:
            members = 3 if request.param == "etcd-3" else 1
            cluster = stack.enter_context(running_etcd(tmp_path / "etcd", members=members))
            place = Place(cluster.url(), 100, stack)
            place.kill, place.restart = cluster.kill, cluster.start
        yield place
