"""A pytest plugin that gives tests a Spark Connect session instead of a classic one: `pytest --connect`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.connect_server import running_connect_server
from tidewheel._spark.session import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    with running_connect_server(tmp_path_factory.mktemp("connect")) as url:
        started = session(url)
        yield started
        started.stop()


@pytest.fixture(autouse=True)
def the_server_shares_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests keep their state in folders, which a run on other hosts refuses."""
    monkeypatch.setattr("tidewheel._spark.driver.check_reachable", lambda *_: None)
