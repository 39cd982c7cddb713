"""State in segments equals sorted lists after any additions and removals, and no segment is left over."""

from __future__ import annotations

import pickle
from bisect import insort
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import ShardParts, from_stored, to_stored
from tidewheel._state import keyed_state, time_order
from tidewheel._state.auxiliary_tables import owner, reassigned
from tidewheel._state.codec import codec_named
from tidewheel._state.keyed_state import KeyedState
from tidewheel._state.segments import SUFFIX, is_head, segment_key
from tidewheel._state.tagged import Divided, undivided
from tidewheel._state.task_state import TaskState
from tidewheel._state.time_order import TimeOrder, TimeOrderCodec, nothing
from tidewheel._testing.plain_copies import PlainCopies
from tidewheel.codecs import msgpack_codec
from tidewheel.errors import CorruptError, StateError

TABLE = "join"
SEGMENTS = f"{TABLE}/{SUFFIX}"
CODEC = TimeOrderCodec(tuple[int, int, bool])


@pytest.fixture(autouse=True, scope="module")
def small_segments() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_order, "SEGMENT_ENTRIES", 2)
        yield


class Committed:
    """The committed state of one shard."""

    def __init__(self) -> None:
        self.copies = PlainCopies()
        self.tables = self.copies.shard(0).tables

    def begin(self) -> tuple[TaskState, KeyedState]:
        task = TaskState(1, 0, {0: ShardParts()}, self.copies, None)
        return task, task.keyed(TABLE, CODEC, nothing)

    def commit(self, task: TaskState) -> dict[str, dict[bytes, bytes | None]]:
        changed = {table: dict(items) for _, table, items in task.changes()}
        for table, items in changed.items():
            for key, raw in items.items():
                self.copies.shard(0).put(table, key, raw)
        return changed

    def numbers(self) -> set[bytes]:
        """Return the keys of the segments that heads refer to."""
        heads = ((stored, raw) for stored, raw in self.tables.get(TABLE, {}).items() if is_head(raw))
        return {segment_key(stored, row[-1]) for stored, raw in heads for row in undivided(raw).segments}


def entries(state: list[TimeOrder] | None) -> list[list[tuple[int, int, bool]]]:
    return [list(side) for side in state or nothing()]


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 12)),
    st.tuples(st.just("take"), st.sampled_from("ab"), st.integers(0, 1), st.integers(-1, 13)),
    st.tuples(st.just("meet"), st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 12)),
    st.tuples(st.just("drop"), st.sampled_from("ab"), st.just(0), st.just(0)),
    st.tuples(st.just("made again"), st.sampled_from("ab"), st.just(0), st.just(0)),
)
BATCHES = st.lists(st.tuples(st.lists(STEPS, max_size=30), st.booleans(), st.booleans()), max_size=6)


@settings(max_examples=150, deadline=None)
@given(BATCHES)
def test_any_batches_give_the_state_of_sorted_lists(batches):
    committed, model, number = Committed(), {"a": [[], []], "b": [[], []]}, 0
    for steps, abandoned, spilled in batches:
        task, states = committed.begin()
        expected = {key: [list(side) for side in sides] for key, sides in model.items()}
        for step, key, side, time in steps:
            state = states.get(key) or nothing()
            of_model = expected[key][side]
            if step == "add":
                number += 1
                state[side].add((time, number, False))
                insort(of_model, (time, number, False))
            elif step == "take":
                taken = state[side].take(time)
                assert taken == [entry for entry in of_model if entry[0] <= time]
                del of_model[: len(taken)]
            elif step == "meet":
                for segment, at in list(state[side].near(time - 2, time + 1)):
                    there, value, met = segment.entries[at]
                    assert time - 2 <= there <= time + 1
                    if not met:
                        segment.changing()[at] = (there, value, True)
                of_model[:] = [(t, n, met or time - 2 <= t <= time + 1) for t, n, met in of_model]
            elif step == "made again":
                state = states.made_again(key, CODEC.encode(state))
            else:
                state, expected[key] = nothing(), [[], []]
            states.put(key, state if any(state) else None)
        if spilled:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(keyed_state, "SPILL_KEYS", -1)
                states.fetch(["a", "b", "c"])
        if not abandoned:
            committed.commit(task)
            model = expected
        task.close()
        _, states = committed.begin()
        assert {key: entries(states.get(key)) for key in "ab"} == model
        assert {from_stored(stored) for stored in committed.tables.get(TABLE, {})} == {
            key for key in "ab" if any(model[key])
        }
        assert set(committed.tables.get(SEGMENTS, {})) == committed.numbers()


def of(*times: int) -> list[TimeOrder]:
    state = nothing()
    for time in times:
        state[0].add((time, time, False))
    return state


def stored(*times: int) -> Committed:
    committed = Committed()
    task, states = committed.begin()
    states.put("k", of(*times))
    committed.commit(task)
    return committed


def test_only_requested_segments_are_read_and_changed_ones_written(monkeypatch):
    committed = stored(*range(100))
    held = len(committed.tables[SEGMENTS])
    assert held > 20
    task, states = committed.begin()
    reads, get = [], task.reader(0).get
    monkeypatch.setattr(task.reader(0), "get", lambda table, key: reads.append(table) or get(table, key))
    state = states.get("k")
    assert [entry[0] for entry in state[0].take(5)] == [*range(6)]
    assert state[0].first == 6
    state[0].add((100, 100, False))
    states.put("k", state)
    changed = committed.commit(task)
    assert len(reads) < 6
    assert len(changed[SEGMENTS]) < 8
    assert [entry[0] for entry in entries(committed.begin()[1].get("k"))[0]] == [*range(6, 101)]


def test_a_state_that_is_looked_at_is_not_changed():
    committed = stored(*range(20))
    task, states = committed.begin()
    states.put("k", states.get("k"))
    assert [segment for segment, _ in states.get("k")[0].near(3, 9)]
    assert committed.commit(task) == {}


def test_a_small_state_is_one_value_as_it_was_before_there_were_segments():
    state = of(1, 2)
    assert msgspec.msgpack.decode(CODEC.encode(state)) == [[[1, 1, False], [2, 2, False]], [], []]


def test_entries_in_the_order_of_arrival_are_sorted_by_time():
    raw = msgspec.msgpack.encode([[(9, 1, False), (3, 2, False)], [(5, 3, True), (5, 4, False)]])
    assert entries(CODEC.decode(raw)) == [[(3, 2, False), (9, 1, False)], [(5, 3, True), (5, 4, False)]]


def test_tools_read_a_head_and_an_older_program_refuses_it():
    (raw,) = stored(*range(20)).tables[TABLE].values()
    head = codec_named("msgpack").decode(raw)
    assert isinstance(head, Divided)
    assert msgpack_codec().encode(head) == raw
    with pytest.raises(StateError, match="does not fit the declared type"):
        msgpack_codec(list[list[tuple[int, int, bool]]]).decode(raw)


def test_a_lost_or_damaged_segment_is_reported_with_its_key():
    committed = stored(*range(20))
    first = min(committed.tables[SEGMENTS])
    committed.tables[SEGMENTS][first] = b"\xc1"
    with pytest.raises(CorruptError, match="a segment of 1 bytes cannot be read"):
        committed.begin()[1].get("k")[0].take(5)
    del committed.tables[SEGMENTS][first]
    with pytest.raises(CorruptError, match="segment 0 of the state of key 'k' is not in 'join/segments'"):
        committed.begin()[1].get("k")[0].take(5)


def test_a_damaged_head_is_reported_with_its_key():
    committed = stored(*range(20))
    committed.tables[TABLE][to_stored("k")] = b"\xc7\x01\x10\xc1"
    with pytest.raises(CorruptError, match="step 'join', key 'k': 4 bytes of state are not the head of segments"):
        committed.begin()[1].get("k")


def test_a_segment_belongs_to_the_key_of_its_state():
    entry = segment_key(to_stored("ada"), 7)
    assert owner(SEGMENTS, entry) == to_stored("ada")
    assert reassigned(SEGMENTS, entry, to_stored(3)) == segment_key(to_stored(3), 7)


def test_the_codec_goes_to_tasks():
    codec = pickle.loads(pickle.dumps(CODEC))
    assert entries(codec.decode(CODEC.encode(of(1)))) == [[(1, 1, False)], []]
