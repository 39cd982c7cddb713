"""D4: an event goes once to its key's shard, or the caller gets an error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.memory_inbox import MemoryInbox, failing, whole
from tidewheel import cells
from tidewheel.errors import ConfigError
from tidewheel.fleet import Coordinator, InboxUnavailable, NoNodes, NotTaken, Router
from tidewheel.fleet._inbox import decode_events


@pytest.fixture
def inbox():
    return MemoryInbox(8)


@pytest.fixture
def coordinator(inbox):
    with cells.open("memory:") as connection, Router(inbox, timeout="0 s") as router:
        yield Coordinator(connection, "job", "here", 8, router=router)


def test_d4_without_nodes_it_is_an_error_and_nothing_is_lost(coordinator, inbox):
    with pytest.raises(NoNodes):
        coordinator.route("k", {"x": 1})
    assert inbox.log == []
    coordinator.join()
    coordinator.route("k", {"x": 1})
    assert len(inbox.log) == 1


def test_d4_a_routed_event_is_in_the_inbox_of_its_shard(coordinator, inbox):
    coordinator.join()
    routed = coordinator.route("k", {"x": 1})
    (stored,) = whole(inbox)
    assert stored.block.shard == routed.shard == coordinator.shard_for_key("k")


_SHARDS = """
from tidewheel._core.keys import shard_of
print([shard_of(key, 8) for key in ("k", 17, b"raw", ("a", 1), "schlüssel")])
"""


def test_d4_the_same_key_has_the_same_shard_on_every_node_and_in_every_run(coordinator):
    keys = ["k", 17, b"raw", ("a", 1), "schlüssel"]
    here = [coordinator.shard_for_key(key) for key in keys]
    coordinator.join()
    coordinator.join("there")
    assert [coordinator.shard_for_key(key) for key in keys] == here
    elsewhere = subprocess.run(
        [sys.executable, "-c", _SHARDS], env={"PYTHONHASHSEED": "5"}, capture_output=True, check=True, text=True
    )
    assert elsewhere.stdout.strip() == str(here)


def test_d4_local_and_remote_delivery_are_counted_apart(coordinator):
    coordinator.join()
    coordinator.join("there")
    routed = [coordinator.route(number, number) for number in range(40)]
    local = sum(event.local for event in routed)
    assert 0 < local < 40
    assert {event.node for event in routed if not event.local} == {"there"}
    stats = coordinator.stats()
    assert (stats.routed, stats.local, stats.remote) == (40, local, 40 - local)


@pytest.mark.parametrize("lost", ["before", "after"])
def test_d4_a_failed_delivery_is_retried_with_its_stamp_and_not_duplicated(coordinator, inbox, lost):
    coordinator.join()
    setattr(inbox, lost, failing(1))
    with pytest.raises(InboxUnavailable, match="do not route them again"):
        coordinator.route("k", 1)
    assert (coordinator.stats().routed, coordinator.stats().failures) == (0, 1)
    coordinator.flush()
    assert len(whole(inbox)) == 1
    assert coordinator.stats().routed == 1


def test_d4_an_event_is_kept_or_refused_never_both(coordinator, inbox):
    coordinator.join()
    inbox.before = failing(2)
    with pytest.raises(InboxUnavailable, match="kept") as kept:
        coordinator.route("k", "A")
    assert not isinstance(kept.value, NotTaken)
    with pytest.raises(NotTaken, match="it was not taken"):
        coordinator.route("k", "B")
    with pytest.raises(InboxUnavailable):
        coordinator.flush()
    coordinator.flush()
    coordinator.route("k", "B")
    assert [payload for stored in whole(inbox) for payload in decode_events(stored).payloads] == [b'"A"', b'"B"']
    assert coordinator.stats().routed == 2


def test_d4_an_inbox_of_another_size_is_refused(inbox):
    refused = pytest.raises(ConfigError, match="has 8 shards, the fleet of 'job' has 16")
    with cells.open("memory:") as connection, Router(inbox) as router, refused:
        Coordinator(connection, "job", "here", 16, router=router)
