"""Which part of a fleet's inbox is still needed, and deleting the rest."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from support.fleet_nodes import SHARDS, Fleet, started
from support.internals import app
from tidewheel.fleet import InboxError, Router
from tidewheel.fleet._inbox.file import FileInbox
from tidewheel.fleet._nodes.inbox_retention import needed_from


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path, keep=2, collect_every=1)
    # Files of a few blocks: whole files are removed.
    opened.inbox = FileInbox(f"{tmp_path}/inbox", SHARDS, segment_bytes=2000)
    opened.router = Router(opened.inbox, linger="0.001 s")
    yield opened
    opened.close()


def trimmed(fleet, *more: str) -> str:
    where = ("--inbox", f"{fleet.where}/inbox", "--state", fleet.store.url)
    result = CliRunner().invoke(app, ["fleet", "trim", "orders", *where, *more], env={"COLUMNS": "1000"})
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def steps(fleet, *nodes, times: int = 4) -> None:
    for _ in range(times):
        fleet.send(200)
        for node in nodes:
            node.step()


def test_nothing_goes_while_a_shard_was_never_read(fleet):
    started(fleet, "a")
    fleet.send(200)
    assert set(needed_from(fleet.chains()).values()) == {0}
    assert "nothing was counted yet of the shards 0-7" in trimmed(fleet)
    assert len(list(fleet.inbox.read(fleet.inbox.start(), fleet.inbox.end(range(SHARDS))))) > 0


def test_retention_removes_events_that_no_kept_checkpoint_needs(fleet):
    a, b = started(fleet, "a", "b")
    steps(fleet, a, b)
    before = fleet.inbox.start()[0]
    assert f"begins at {before} and is needed from" in trimmed(fleet, "--dry-run")
    assert fleet.inbox.start()[0] == before
    trimmed(fleet)
    needed = needed_from(fleet.chains())
    assert before < fleet.inbox.start()[0] <= min(needed.values())
    with pytest.raises(InboxError, match="trimmed"):
        list(fleet.inbox.read(dict.fromkeys(range(SHARDS), before), fleet.inbox.end(range(SHARDS))))

    # One dies with a batch computed and not committed; the other reads what it had read.
    fleet.send(200)
    a.prepare()
    trimmed(fleet)
    b.coordinator.leave("a")
    b.begin()
    steps(fleet, b, times=2)
    fleet.check_exact()


def test_a_kept_checkpoint_keeps_the_events_after_it(fleet):
    (a,) = started(fleet, "a")
    steps(fleet, a, times=5)
    kept = fleet.chains().of(a.info.name).list()
    assert len(kept) >= 2
    needed = needed_from(fleet.chains())
    assert all(needed[shard] < position for shard, position in a.positions.items())


def test_no_such_fleet(fleet):
    where = ["--inbox", f"{fleet.where}/inbox", "--state", fleet.store.url]
    result = CliRunner().invoke(app, ["fleet", "trim", "others", *where], env={"COLUMNS": "1000"})
    assert result.exit_code == 1
    assert "there is no fleet of job 'others'" in " ".join(result.output.split())
