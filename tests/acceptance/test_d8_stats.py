"""D8: each counter counts what its name says."""

from __future__ import annotations

import uuid

import pytest

from support.memory_inbox import MemoryInbox, failing
from tidewheel import cells
from tidewheel._cells.backends import memory
from tidewheel.fleet import (
    AlreadyMember,
    Assignment,
    AssignmentRefused,
    Coordinator,
    InboxUnavailable,
    NoNodes,
    NotCommitted,
    Router,
)
from tidewheel.fleet._nodes.coordinator import Stats


def test_d8_stats():
    url = f"memory:{uuid.uuid4()}"
    inbox = MemoryInbox(8)
    with cells.open(url, timeout="0.1 s") as connection, Router(inbox, timeout="0 s") as router:
        one = Coordinator(connection, "job", "a", 8, router=router, idempotent=False)
        other = Coordinator(connection, "job", "b", 8)
        assert one.stats() == Stats()

        with pytest.raises(NoNodes):
            one.route("k", 1)
        assert one.stats() == Stats(failures=1)

        one.join()
        assert one.stats() == Stats(joins=1, installs=1, failures=1)
        assert other.stats() == Stats(installs=1), "what another has committed came into use here too"

        with pytest.raises(AlreadyMember):
            one.join()
        with memory.outage(url), pytest.raises(NotCommitted):
            one.leave()
        with pytest.raises(AssignmentRefused):
            one.install_assignment(Assignment(8, 1))
        assert one.stats() == Stats(joins=1, installs=1, failures=4)

        one.route("k", 1)
        inbox.before = failing(1)
        with pytest.raises(InboxUnavailable):
            one.route("k", 2)
        assert one.stats() == Stats(joins=1, installs=1, routed=1, local=1, failures=5)
        one.flush()
        assert one.stats() == Stats(joins=1, installs=1, routed=2, local=2, failures=5)

        one.install_assignment(Assignment(8, 5, {"b": 1.0}, ("b",) * 8))
        one.route("k", 3)
        assert one.stats() == Stats(joins=1, installs=2, routed=3, local=2, remote=1, failures=5)
        one.leave("b")
        assert one.stats() == Stats(joins=1, leaves=1, installs=3, routed=3, local=2, remote=1, failures=5)
