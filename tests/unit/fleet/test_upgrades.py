"""A fleet continues state of an earlier version of its program, like a single run: new names, new versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fleet_nodes import SHARDS, Fleet, MemoryNode, started
from tidewheel import Job, max_, sum_, tumbling
from tidewheel._operators.windows.fixed import FixedWindows
from tidewheel._state.layout import StateLayout
from tidewheel.errors import StateError
from tidewheel.sinks import files
from tidewheel.sources import inbox


def before(where: Path) -> Job:
    return program(where, "count", lambda key, event, n: ({"key": key, "n": n + 1}, n + 1), default=0)


def after(where: Path, **options) -> Job:
    """The state is a dict now, under another name."""

    def counted(key, event, state):
        state = {"n": state["n"] + 1}
        return {"key": key, "n": state["n"]}, state

    return program(where, "counts", counted, default={"n": 0}, version=2, **options)


def upgraded(where: Path) -> Job:
    return after(where, upgrade=lambda state, version: {"n": state}, aliases=["count"])


def program(where: Path, name: str, function, **options) -> Job:
    job = Job("orders", state=f"file://{where}/state", n_shards=SHARDS)
    events = job.source("in", inbox(f"{where}/inbox", schema="key string, amount long"))
    events.key_by("by-key", "key").stateful_map(name, function, **options).sink(
        "out", files(f"{where}/out", format="json")
    )
    return job


def node(build):
    return type("Node", (MemoryNode,), {"build": lambda self: build(self.fleet.where)})


@pytest.fixture
def fleet(tmp_path):
    made = Fleet(tmp_path)
    yield made
    made.close()


def check(fleet):
    rows = sorted((row["key"], row["n"]) for row in fleet.published())
    assert rows == sorted((key, n) for key, last in fleet.sent.items() for n in range(1, last + 1))


def test_a_node_with_a_new_version_upgrades_the_shards_it_adopts(fleet):
    fleet.send(100)
    for old in started(fleet, "a", "b", node=node(before)):
        old.step()
        old.coordinator.leave(old.name)
    fleet.send(100)
    (new,) = started(fleet, "c", node=node(upgraded))
    new.step()
    new.close()
    check(fleet)


def test_shards_that_were_upgraded_and_shards_that_were_not_come_together(fleet):
    fleet.send(100)
    old = started(fleet, "a", "b", node=node(before))
    for each in old:
        each.step()
    old[0].coordinator.leave("a")
    kind = node(upgraded)
    # It takes what was a's, and upgrades that; then b goes, and its shards are as the old program left them.
    c = kind(fleet, "c")
    c.join()
    c.begin()
    assert 0 < len(c.shards()) < SHARDS
    fleet.send(100)
    c.step()
    old[1].coordinator.leave("b")
    c.begin()
    c.step()
    c.close()
    check(fleet)


def test_state_of_an_older_version_without_a_way_to_the_new_one_is_refused(fleet):
    fleet.send(10)
    (old,) = started(fleet, "a", node=node(before))
    old.step()
    old.coordinator.leave("a")
    with pytest.raises(StateError, match="'counts': its state has version 1, the program has version 2 and no way"):
        started(fleet, "c", node=node(lambda where: after(where, aliases=["count"])))
    with pytest.raises(StateError, match="names the step 'count', which the program lacks"):
        started(fleet, "d", node=node(after))


def summed(**aggregates):
    def build(where: Path) -> Job:
        job = Job("orders", state=f"file://{where}/state", n_shards=SHARDS)
        events = job.source("in", inbox(f"{where}/inbox", schema="key string, amount long"))
        events.key_by("by-key", "key").aggregate("sums", **aggregates).sink("out", files(f"{where}/out", format="json"))
        return job

    return build


def test_changed_aggregates_are_refused_because_it_is_a_fleet(fleet):
    fleet.send(20)
    (old,) = started(fleet, "a", node=node(summed(amount=sum_("amount"))))
    old.step()
    old.coordinator.leave(old.name)
    changed = node(summed(amount=sum_("amount"), most=max_("amount")))
    with pytest.raises(StateError, match=r"'sums' has other aggregates .* run by a fleet\..* a new name"):
        started(fleet, "b", node=changed)


def test_aggregates_in_another_order_continue_as_in_a_single_run(fleet):
    fleet.send(20, keys=10)
    (old,) = started(fleet, "a", node=node(summed(amount=sum_("amount"), most=max_("amount"))))
    old.step()
    old.coordinator.leave(old.name)
    fleet.send(10, keys=10)
    (new,) = started(fleet, "b", node=node(summed(most=max_("amount"), amount=sum_("amount"))))
    new.step()
    new.close()
    newest = {row["key"]: (row["amount"], row["most"]) for row in fleet.published()}
    assert newest == {f"k{n}": (3 * n + 30, n + 20) for n in range(10)}


def counted_by(length: str):
    def build(where: Path) -> Job:
        job = Job("orders", state=f"file://{where}/state", n_shards=SHARDS)
        events = job.source("in", inbox(f"{where}/inbox", schema="key string, amount long"))
        on_time = events.assign_timestamps("at", "amount", unit="ns").limit_out_of_orderness("bound", "0 s")
        windows = on_time.key_by("by-key", "key").window("counts", tumbling(length), lambda n, _: n + 1, default=0)
        windows.sink("out", files(f"{where}/out", format="json"))
        return job

    return build


def test_windows_of_an_earlier_version_continue_and_then_fix_their_length(fleet, monkeypatch):
    fleet.send(20, keys=10)
    with monkeypatch.context() as version:
        version.setattr(FixedWindows, "state_layout", StateLayout("window"))
        (old,) = started(fleet, "a", node=node(counted_by("100 ns")))
        old.step()
        old.coordinator.leave("a")
    fleet.send(20, keys=10)
    (new,) = started(fleet, "b", node=node(counted_by("100 ns")))
    new.step()
    new.coordinator.leave("b")
    with pytest.raises(
        StateError,
        match=r"'counts' kept folded windows of 100 ns .*, and now keeps folded windows of 300 ns",
    ):
        started(fleet, "c", node=node(counted_by("300 ns")))
    new.coordinator.leave("c")
    fleet.send(100, keys=10)
    (last,) = started(fleet, "d", node=node(counted_by("100 ns")))
    last.step()
    last.step()
    last.close()
    assert sorted((row["key"], row["value"]) for row in fleet.published()) == [(f"k{n}", 10) for n in range(10)]
