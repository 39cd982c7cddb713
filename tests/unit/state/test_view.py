"""The state in a task equals a dict, whatever is opened, written, read and spilled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.internals import FileRef, ShardParts, from_stored, shard_of, to_stored
from tidewheel._core.keys import shard_of_stored
from tidewheel._state import keyed_state, task_state
from tidewheel._state.compaction import merge
from tidewheel._state.key_batch import RefusedState
from tidewheel._state.key_lookup import KeyLookup
from tidewheel._state.keyed_state import KeyedState
from tidewheel._state.local_copies import CopyLimits, LocalCopies
from tidewheel._state.state_file import StateFile, StateFileWriter
from tidewheel._state.task_state import TaskState
from tidewheel.codecs import msgpack_codec
from tidewheel.errors import StepError

N_SHARDS = 4
TABLE = "sums"


class Job:
    """A job's state over its commits: files in memory, local copies in a folder."""

    def __init__(self, folder: Path, is_cold: bool, **limits: int) -> None:
        self.folder, self.is_cold = folder, is_cold
        self.copies = LocalCopies(folder / "0", CopyLimits(stale_bytes=0 if is_cold else 1 << 30, **limits))
        self.files: dict[str, bytes] = {}
        self.parts: dict[int, ShardParts] = {}
        self.sequence = 0

    def task(self) -> TaskState:
        if self.is_cold:
            self.copies.close()
            self.copies = LocalCopies(self.folder / str(self.sequence), self.copies.limits)
        lookup = KeyLookup(lambda name, start, length: self.files[name][start : start + length])
        return TaskState(N_SHARDS, self.sequence, self.parts, self.copies, self._fetch, lookup=lambda: lookup)

    def commit(self, task: TaskState) -> dict[str, dict[Any, bytes | None]]:
        """Commit what a task changed, and return it by table and key."""
        writer, changed = StateFileWriter(), {}
        for shard, table, items in task.changes():
            # The writer refuses what is not strictly ascending.
            writer.add(shard, table, items)
            assert all(shard_of_stored(stored, N_SHARDS) == shard for stored, _ in items)
            changed.setdefault(table, {}).update((from_stored(stored), raw) for stored, raw in items)
        task.close()
        data, checksum = writer.finish()
        self.sequence += 1
        ref = FileRef(f"delta-{self.sequence}", len(data), checksum)
        self.files[ref.name] = data
        for shard, part in writer.parts(ref, self.sequence).items():
            self.parts[shard] = merge(self.parts.get(shard, ShardParts()), (part,))
        return changed

    def _fetch(self, ref: FileRef) -> StateFile:
        return StateFile.of(self.files[ref.name], ref)


class Jobs:
    def __init__(self, root: Path, are_cold: bool) -> None:
        self.root, self.are_cold, self.made = root, are_cold, []

    def __call__(self, **limits: int) -> Job:
        self.made.append(Job(self.root / str(len(self.made)), self.are_cold, **limits))
        return self.made[-1]


@pytest.fixture(params=["copies", "blocks", "both"])
def jobs(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """Jobs whose tasks read local copies, or blocks of state files, or blocks first and then copies."""
    monkeypatch.setattr(task_state, "_BLOCK_SHARE", 1e-9 if request.param == "blocks" else 1)
    found = Jobs(tmp_path, are_cold=request.param != "copies")
    yield found
    for job in found.made:
        job.copies.close()


@pytest.fixture
def few_keys_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_state, "SPILL_KEYS", 2)


def state_of(task: TaskState) -> KeyedState:
    return task.keyed(TABLE, msgpack_codec(), lambda: None)


KEYS = {
    "str": [*"abcdefgh", "long" * 200, ""],
    "int": [0, 1, -1, 2**63 - 1, -(2**63), 5, 6],
    "bytes": [b"", b"a", b"b", b"\xff" * 600],
    "tuple": [("a", 1), ("a", 2), (), (None, "x")],
    "bool": [True, False],
    "float": [0.0, 1.5, -2.5],
    "str or int": ["a", "b", "1", 1, 2, 3],
}
ARROW = {"str": pa.string(), "int": pa.int64(), "bytes": pa.binary(), "bool": pa.bool_(), "float": pa.float64()}
STATES = st.none() | st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2)


@st.composite
def histories(draw):
    """A kind of keys, and batches of steps: messages that are handled together, or a look at single keys."""
    kind = draw(st.sampled_from(sorted(KEYS)))
    key = st.sampled_from(KEYS[kind])
    column = st.booleans() if kind in ARROW else st.just(False)
    step = st.one_of(
        st.tuples(st.just("open"), st.lists(st.tuples(key, STATES), min_size=1, max_size=8), column),
        st.tuples(st.just("put"), key, STATES),
        st.tuples(st.just("get"), key),
        st.tuples(st.just("whole"), st.integers(0, N_SHARDS - 1), st.lists(st.tuples(key, STATES), max_size=3)),
    )
    return kind, draw(st.lists(st.lists(step, max_size=5), min_size=1, max_size=4))


def run_step(state: KeyedState, model: dict[Any, Any], kind: str, step: tuple) -> None:
    """Do the same with the state and with a dict."""
    if step[0] == "open":
        keys = [key for key, _ in step[1]]
        opened = state.open(None, pa.array(keys, ARROW[kind])) if step[2] else state.open(keys, None)
        for at, (key, new) in zip(opened.places(), step[1], strict=True):
            assert opened.keys[at] == key
            assert opened.states[at] == model.get(key)
            opened.states[at] = new
            model[key] = new
        state.keep(opened)
    elif step[0] == "put":
        state.put(step[1], step[2])
        model[step[1]] = step[2]
    elif step[0] == "get":
        assert state.get(step[1]) == model.get(step[1])
    else:
        run_whole(state.shard(step[1]), model, step[1], step[2])


def run_whole(states: Any, model: dict[Any, Any], shard: int, changes: list[tuple[Any, Any]]) -> None:
    """Use a whole shard's states as the mapping that it is."""

    def expected() -> dict[Any, Any]:
        return {key: new for key, new in model.items() if new is not None and shard_of(key, N_SHARDS) == shard}

    assert dict(states) == expected()
    assert list(states) == sorted(expected(), key=to_stored)
    for key, new in changes:
        if shard_of(key, N_SHARDS) != shard:
            assert key not in states
            with pytest.raises(StepError, match="does not belong to the shard"):
                states[key] = new
        elif new is None:
            if key in expected():
                del states[key]
            else:
                with pytest.raises(KeyError):
                    del states[key]
            model[key] = None
        else:
            states[key] = new
            model[key] = new
        assert len(states) == len(expected())
    assert dict(states.items()) == expected()


several = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)


def held(states: dict[Any, Any]) -> dict[Any, Any]:
    return {key: state for key, state in states.items() if state is not None}


def check_history(job: Job, kind: str, batches: list[list[tuple]]) -> None:
    model: dict[Any, Any] = {}
    decode = msgpack_codec().decode
    for steps in batches:
        task, before = job.task(), dict(model)
        state = state_of(task)
        for step in steps:
            run_step(state, model, kind, step)
        changed = job.commit(task).get(TABLE, {})
        after = {**before, **{key: None if raw is None else decode(raw) for key, raw in changed.items()}}
        assert held(after) == held(model)


@several
@given(history=histories())
def test_any_history_is_that_of_a_dict(jobs, history):
    check_history(jobs(), *history)


@several
@given(history=histories())
def test_any_history_is_that_of_a_dict_when_memory_is_short(jobs, few_keys_in_memory, history):
    check_history(jobs(), *history)


def test_keys_survive_a_spill_to_disk(jobs, few_keys_in_memory):
    task = jobs().task()
    state = state_of(task)
    for key in "abc":
        state.put(key, key.upper())
    opened = state.open(["a", "d", "b"], None)
    assert opened.states == ["A", None, "B"]
    assert dict(state.shard(shard_of("c", N_SHARDS)))["c"] == "C"
    task.close()


def test_looking_through_a_shard_changes_nothing(jobs):
    job = jobs()
    task = job.task()
    state = state_of(task)
    for key in "abcdef":
        state.put(key, 1)
    job.commit(task)
    task = job.task()
    state = state_of(task)
    assert sorted(key for shard in range(N_SHARDS) for key in state.shard(shard)) == list("abcdef")
    assert all(value == 1 for shard in range(N_SHARDS) for value in state.shard(shard).values())
    assert job.commit(task) == {}


def test_states_may_be_set_and_deleted_while_they_are_listed(jobs):
    task = jobs().task()
    state = state_of(task)
    keys = [key for key in "abcdefghijklmnop" if shard_of(key, N_SHARDS) == 0]
    for key in keys:
        state.put(key, 1)
    states = state.shard(0)
    for key in states:
        if states[key] == 1:
            del states[key]
            states[key] = 2
    assert dict(states) == dict.fromkeys(keys, 2)
    states.clear()
    assert dict(states) == {}
    task.close()


def test_tables_are_apart(jobs):
    job = jobs()
    task = job.task()
    left, right = task.keyed("left", msgpack_codec(), list), task.keyed("left/timers", msgpack_codec(), list)
    left.put("a", 1)
    right.put("a", 2)
    raw = task.raw("raw")
    raw.put(shard_of("a", N_SHARDS), [to_stored("a")], [b"\x03"])
    assert job.commit(task) == {"left": {"a": b"\x01"}, "left/timers": {"a": b"\x02"}, "raw": {"a": b"\x03"}}


def test_a_raw_table_gives_new_values_before_committed_ones(jobs):
    job, stored = jobs(), to_stored("a")
    shard = shard_of("a", N_SHARDS)
    task = job.task()
    task.raw(TABLE).put(shard, [stored], [b"old"])
    job.commit(task)
    task = job.task()
    raw = task.raw(TABLE)
    assert raw.get_many(shard, [stored, b"sz"]) == [b"old", None]
    raw.put(shard, [stored], [b"new"])
    assert raw.get_many(shard, [stored]) == [b"new"]
    raw.put(shard, [stored], [None])
    assert raw.get_many(shard, [stored]) == [None]
    assert task.touched() == {shard}
    assert job.commit(task) == {TABLE: {"a": None}}


@pytest.mark.parametrize("column", [True, False])
def test_a_state_that_cannot_be_stored_is_refused_with_the_place_of_its_key(jobs, column):
    task = jobs().task()
    state = state_of(task)
    opened = state.open(["a", "b"], pa.array(["a", "b"]) if column else None)
    opened.states[opened.keys.index("b")] = object()
    with pytest.raises(RefusedState, match="object") as refused:
        state.keep(opened)
    assert opened.keys[refused.value.place] == "b"
    task.close()


def test_a_single_state_that_cannot_be_stored_names_operator_and_key(jobs):
    task = jobs().task()
    state_of(task).put("b", object())
    with pytest.raises(StepError, match=r"step 'sums', key 'b': its state cannot be stored: .*object"):
        list(task.changes())
    task.close()


@pytest.mark.parametrize("column", [True, False])
def test_a_delta_has_only_the_changed_keys(jobs, column):
    def batch(states: dict[str, Any]) -> dict[str, dict[Any, bytes | None]]:
        task = job.task()
        state = state_of(task)
        keys = list(states)
        opened = state.open(None, pa.array(keys)) if column else state.open(keys, None)
        opened.states = [states[key] for key in opened.keys]
        state.keep(opened)
        return job.commit(task)

    job = jobs()
    assert batch({"a": 1, "b": 2, "never": None}) == {TABLE: {"a": b"\x01", "b": b"\x02"}}
    assert batch({"a": 1, "b": 3, "never": None}) == {TABLE: {"b": b"\x03"}}
    assert batch({"a": 1, "b": None}) == {TABLE: {"b": None}}
    assert batch({"a": 1, "b": None}) == {}


def test_a_state_that_was_spilled_and_set_back_is_as_it_was(jobs, few_keys_in_memory):
    job = jobs()
    task = job.task()
    state_of(task).put("a", 1)
    job.commit(task)
    task = job.task()
    state = state_of(task)
    assert state.get("a") == 1
    state.put("a", 2)
    for key in "bcdefg":
        state.fetch([key])
    assert state.get("a") == 2
    state.put("a", 1)
    assert job.commit(task)[TABLE]["a"] == b"\x01"


@pytest.mark.parametrize("second", [([1.0], None), (None, pa.array([1.0])), ([True], None), (None, pa.array([True]))])
@pytest.mark.parametrize("first", [([1], None), (None, pa.array([1]))])
def test_keys_of_several_types_of_number_are_refused(jobs, first, second):
    task = jobs().task()
    state = state_of(task)
    state.keep(state.open(*first))
    with pytest.raises(StepError, match=r"step 'sums': all keys must be of one type, not \w+ and \w+; convert"):
        state.open(*second)
    with pytest.raises(StepError, match="all keys must be of one type"):
        state_of(task).fetch([1, True])
    task.close()


@pytest.mark.parametrize("jobs", ["copies"], indirect=True)
def test_a_task_that_fills_many_copies_releases_them(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_state, "FILLED_COPIES", 2)
    job = jobs(many_keys=2, many_pages=0)
    task = job.task()
    states = task.keyed(TABLE, msgpack_codec(int), int)
    for key in range(40):
        states.put(key, key)
    job.commit(task)
    relieved, relieve = [], job.copies.relieve
    monkeypatch.setattr(job.copies, "relieve", lambda: relieved.append(1) or relieve())
    task = job.task()
    for shard in range(N_SHARDS):
        task.reader(shard)
    # After two of the four. Released copies are counted like open ones.
    assert relieved == [1]
    assert {shard for shard, _, keys, _ in task.sizes(lambda shard: True) if keys} == set(range(N_SHARDS))
    states = task.keyed(TABLE, msgpack_codec(int), int)
    assert [states.get(key) for key in range(40)] == list(range(40))
    task.close()
    relieved.clear()
    task = job.task()
    states = task.keyed(TABLE, msgpack_codec(int), int)
    assert [states.get(key) for key in range(40)] == list(range(40))
    task.close()
    # Copies that were opened again are not filled.
    assert relieved == []
