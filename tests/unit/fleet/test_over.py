"""The leftovers of finished runs are deleted in the order of their numbers; a node that was paused meanwhile does no harm."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fleet_nodes import Fleet, MemoryNode, started
from support.internals import faults
from tidewheel.errors import FencedError
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.chains import take
from tidewheel.fleet._nodes.errors import Overtaken
from tidewheel.fleet._nodes.ledger import ledger_of
from tidewheel.fleet._nodes.over import Note, delete_late_files, due, remove_ended_runs
from tidewheel.fleet._nodes.sweep import sweep
from tidewheel.sinks import whole_files


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path, snapshot_every=2, collect_every=2, keep=1, grace="0 s")
    yield opened
    opened.close()


def forgetting(fleet: Fleet, node: MemoryNode, after: float = 0.0):
    """Do what the node of the first shard does now and then, twice: what is found over first goes the second time."""

    def forget(runs) -> None:
        for each in node.plan.nodes:
            if each.name == "out":
                each.operator.sink.forget("orders", "out", runs)

    gone: list[int] = []
    for _ in range(2):
        sweep(fleet.chains(), grace=0.0, beginning=0.0)
        gone += remove_ended_runs(fleet.chains(), forget, after)
    return gone


def count_all(fleet: Fleet, nodes: list[MemoryNode], rounds: int = 1) -> None:
    for _ in range(rounds):
        fleet.send(60)
        for node in nodes:
            node.step()


def left_of(fleet: Fleet, run: int) -> list[str]:
    entries = [entry.path for entry in fleet.store.list(f"orders=2F{run}")]
    hidden = (fleet.where / "out" / "_tidewheel").glob(f"orders=2F{run}~*")
    return [*entries, *(str(path) for path in hidden)]


def test_files_of_ended_runs_are_removed_and_the_fleet_continues(fleet):
    nodes = started(fleet, "a", "b")
    count_all(fleet, nodes)
    before = whole_files(fleet.where / "out")
    for node in nodes:
        node.begin()
    count_all(fleet, nodes, 3)
    assert forgetting(fleet, nodes[0]) == [1, 2]
    assert [left_of(fleet, run) for run in (1, 2)] == [[], []]
    assert all(left_of(fleet, run) for run in (3, 4)), "those that work have what they need"
    assert set(before) < set(whole_files(fleet.where / "out")), "what the old runs published counts as whole"
    count_all(fleet, nodes)
    fleet.check_exact()
    assert forgetting(fleet, nodes[0]) == [], "once is enough"


def test_they_stay_for_a_while(fleet):
    (node,) = started(fleet, "a")
    node.begin()
    assert forgetting(fleet, node, after=1000.0) == []
    assert left_of(fleet, 1)


def test_a_working_node_keeps_records_of_later_runs(fleet):
    a, b = started(fleet, "a", "b")
    for _ in range(3):
        b.begin()
    assert forgetting(fleet, a) == []
    a.begin()
    assert forgetting(fleet, a) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "point",
    [
        "files.over",
        "fleet.markers-gone",
        "fleet.last-record",
        "chain.removing",
        "chain.removing@2",
        "fleet.run-removed",
    ],
)
def test_an_interrupted_removal_is_finished_by_the_next_one(fleet, point):
    nodes = started(fleet, "a", "b")
    count_all(fleet, nodes)
    for node in nodes:
        node.begin()
    count_all(fleet, nodes, 3)
    name, _, hit = point.partition("@")
    faults.arm(f"{name}=raise@{hit or 1}")
    try:
        with pytest.raises(faults.InjectedFault):
            forgetting(fleet, nodes[0])
    finally:
        faults.arm("")
    count_all(fleet, nodes)
    fleet.check_exact()
    forgetting(fleet, nodes[0])
    assert [left_of(fleet, run) for run in (1, 2)] == [[], []]
    for node in nodes:
        node.begin()
    count_all(fleet, nodes)
    fleet.check_exact()


@pytest.mark.parametrize(
    "point", ["", "fleet.markers-gone", "fleet.last-record", "chain.removing", "fleet.run-removed"]
)
def test_a_node_that_slept_through_it_commits_nothing(fleet, point):
    a, b = started(fleet, "a", "b")
    count_all(fleet, [a, b])
    fleet.send(60)
    asleep = a.prepare()
    b.coordinator.leave("a")
    b.begin()
    count_all(fleet, [b], 3)
    faults.arm(f"{point}=raise" if point else "")
    try:
        with pytest.raises(faults.InjectedFault) if point else contextlib.nullcontext():
            assert forgetting(fleet, b) == [1, 2]
    finally:
        faults.arm("")
    with pytest.raises(FencedError):
        a.finish(asleep)
    count_all(fleet, [b])
    fleet.check_exact()
    forgetting(fleet, b)
    assert left_of(fleet, 1) == []


def test_a_node_that_slept_between_commit_and_publication_publishes_nothing(fleet):
    a, b = started(fleet, "a", "b")
    count_all(fleet, [a, b])
    fleet.send(60)
    faults.arm("publish.before-sink=raise")
    try:
        with pytest.raises(faults.InjectedFault):
            a.step()
    finally:
        faults.arm("")
    b.coordinator.leave("a")
    b.begin()  # It publishes what a had committed.
    count_all(fleet, [b], 3)
    assert forgetting(fleet, b) == [1, 2]
    for path in (fleet.where / "out").glob("orders=2F1~*"):
        path.unlink()  # A reader took it away.
    with pytest.raises(FencedError, match="up to number 2 are finished"):
        a.run.publish(None)
    assert not list((fleet.where / "out").glob("orders=2F1~*"))


def test_files_written_for_a_removed_run_are_deleted_with_the_next_run(fleet):
    """A node resumes in the middle of a batch, after its run was removed: its requests take effect only now."""
    a, b = started(fleet, "a", "b")
    count_all(fleet, [a, b])
    fleet.send(60)
    before = left_of(fleet, 1)
    prepared = a.prepare()
    late = {path: fleet.store.read(path) for path in left_of(fleet, 1) if path not in before}
    b.coordinator.leave("a")
    b.begin()
    count_all(fleet, [b], 3)
    assert forgetting(fleet, b) == [1, 2]
    for path, data in late.items():
        fleet.store.write(path, data)
    with pytest.raises(FencedError):
        a.finish(prepared)
    assert set(late) <= set(left_of(fleet, 1))
    b.begin()
    count_all(fleet, [b], 3)
    assert forgetting(fleet, b) == [3]
    assert left_of(fleet, 1) == []
    count_all(fleet, [b])
    fleet.check_exact()


def test_files_of_a_removed_run_stay_while_it_can_still_adopt_a_shard(fleet):
    """Its record in the holder's chain took effect late: the next record of the run could refer to these files."""
    a, b, late = with_a_run_that_never_began(fleet)
    assert forgetting(fleet, a) == [late.number]
    b.chains.ledgers()
    head = ledger_of(b.chains.heads[a.info.name])
    assert b.chains.append(handover.revoke(head, [0, 1], late.name), late.token)
    page = f"orders=2F{late.number}/state/page"
    fleet.store.write(page, b"page")
    delete_late_files(fleet.chains())
    assert left_of(fleet, late.number) == [page]
    a.begin()
    delete_late_files(fleet.chains())
    assert left_of(fleet, late.number) == []


def with_a_run_that_never_began(fleet):
    """Return a node that holds all shards, another, and a run of that one which is registered and adopted nothing."""
    a, b = MemoryNode(fleet, "a"), MemoryNode(fleet, "b")
    late = b.chains.begin("b", 8)
    a.join()
    a.begin()
    count_all(fleet, [a])
    return a, b, late


def test_requests_of_a_removed_run_do_not_block_a_shard(fleet):
    """Its record in the holder's chain was on its way while all that was left of it was removed, and took effect after all."""
    a, b, late = with_a_run_that_never_began(fleet)
    assert forgetting(fleet, a) == [late.number]
    b.chains.ledgers()
    head = ledger_of(b.chains.heads[a.info.name])
    assert b.chains.append(handover.revoke(head, [0, 1], late.name), late.token)
    sweep(fleet.chains(), grace=0.0, beginning=0.0)
    with pytest.raises(Overtaken):
        take(b.chains, late, lambda: [0, 1], b.publish_for, b.check)
    a.begin()
    assert len(a.ledger.held) == 8
    count_all(fleet, [a])
    fleet.check_exact()


def test_a_run_is_not_removed_while_its_record_is_needed_after_all(fleet):
    a, b, late = with_a_run_that_never_began(fleet)
    sweep(fleet.chains(), grace=0.0, beginning=0.0)
    b.chains.ledgers()
    head = ledger_of(b.chains.heads[a.info.name])
    assert b.chains.append(handover.revoke(head, [0, 1], late.name), late.token)
    assert forgetting(fleet, a) == []
    a.begin()
    count_all(fleet, [a])
    assert forgetting(fleet, a) == [1]
    fleet.check_exact()


def test_a_run_that_never_began_its_chain_is_over_too(fleet):
    a = MemoryNode(fleet, "a")
    a.chains.open_origin(8)
    died = a.chains.runs.register("b")
    a.join()
    a.begin()
    count_all(fleet, [a])
    forgetting(fleet, a)
    forgetting(fleet, a)
    assert fleet.chains().runs.numbers() == [a.info.number]
    assert left_of(fleet, died.number) == []


def test_a_shard_is_taken_again_from_a_giver_only_after_another_look(fleet):
    """A run that is gone may have been passed over before: who got the shard then shows in a look that begins later."""
    a = MemoryNode(fleet, "a")
    a.join()
    a.begin()
    chains = fleet.chains()
    chains.ledgers()
    head = ledger_of(chains.heads[a.info.name])
    assert chains.append(handover.revoke(head, [0], "77"), "77")
    ledgers = chains.ledgers()
    assert chains.gone == frozenset()
    assert handover.next_step(a.info.name, [0], ledgers, {}, chains.gone) is None
    ledgers = chains.ledgers()
    assert chains.gone == {"77"}
    step = handover.next_step(a.info.name, [0], ledgers, {}, chains.gone)
    assert isinstance(step, handover.Append)
    given_to, taken = ledgers[a.info.name].revoked[0], step.ledger.revoked[0]
    assert (taken.to, taken.holding.term) == (a.info.name, given_to.holding.term + 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 20)), max_size=40), st.floats(0, 15))
def test_runs_go_once_in_order_and_never_before_their_time(steps, after):
    """Of whatever is forgotten, and whenever somebody looks."""
    note, lowest, now = Note(), 1, 0.0
    over_since: dict[int, float] = {}
    gone: list[int] = []
    for forgotten, seconds in steps:
        now += seconds
        for run in range(lowest, lowest + forgotten):
            over_since[run] = now
        lowest += forgotten
        note, runs = due(note, lowest, now, after)
        assert all(run < lowest and over_since[run] + after <= now for run in runs)
        if runs:
            gone += runs
            note = Note(runs[-1], note.found, note.found_at)
    for _ in range(2):
        note, runs = due(note, lowest, now, after)
        if runs:
            gone += runs
            note = Note(runs[-1], note.found, note.found_at)
        now += after
    for _ in range(2):
        note, runs = due(note, lowest, now, after)
        gone += runs
        note = Note(max([note.removed, *runs]), note.found, note.found_at)
        now += after
    assert gone == list(range(1, lowest)), "all go in the end, each once"
