"""All readers of state see one value per key, whether it is stored in segments or not."""

from __future__ import annotations

import secrets

import pytest
from pyarrow import parquet

from support.internals import from_stored
from tidewheel import Job, Message, StoredJob
from tidewheel._checkpoint.tools.text import decoded
from tidewheel._operators.keyed import known_ids
from tidewheel._state import time_order
from tidewheel._state.tagged import Divided
from tidewheel._testing.result import result_of
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun, StepTester

COUNT = 20


@pytest.fixture
def state(monkeypatch) -> str:
    monkeypatch.setattr(time_order, "SEGMENT_ENTRIES", 2)
    monkeypatch.setattr(known_ids, "SEGMENT_IDS", 2)
    url = f"memory:read-segments-{secrets.token_hex(4)}"
    job = Job("job", state=url, n_shards=4)
    left, right = (
        job.source(side, lambda spark: None).assign_timestamps(f"t-{side}", "n", unit="ns").key_by(f"by-{side}", "key")
        for side in ("left", "right")
    )
    left.deduplicate("once", "100 ns", by=lambda record: str(record["n"])).interval_join("join", right).sink(
        "out", collect()
    )
    with MemoryRun(job) as run:
        run.batch({"left": [{"key": "hot", "n": n} for n in range(COUNT)], "right": [{"key": "cold", "n": 0}]})
        run.batch({"left": [{"key": "cold", "n": 7}], "right": [{"key": "hot", "n": 90}]})
    return url


def test_ids_are_one_map(state, tmp_path):
    stored = StoredJob("job", state=state)
    ids = {str(n): n + 100 for n in range(COUNT)}
    assert next(iter(stored.scan("once/segments")))
    assert stored.get("once", "hot", type=dict[str, int]).value == ids
    assert dict(stored.scan("once")) == {"hot": ids, "cold": {"7": 107}}
    stored.export("once", tmp_path / "ids.parquet", type=dict[str, int])
    assert parquet.read_table(tmp_path / "ids.parquet").num_rows == 2


def test_a_join_has_two_sides(state):
    stored = StoredJob("job", state=state)
    sides = stored.get("join", "hot").value
    assert [entry["time"] for entry in sides["left"]] == [*range(COUNT)]
    assert [entry["time"] for entry in sides["right"]] == [90]
    left, right, _ = stored.get("join", "hot", type=list).value
    assert (len(left), len(right)) == (COUNT, 1)
    assert result_of(Job("job", state=state), {}).states["join"] == dict(stored.scan("join", type=list))


def test_differing_join_segments_of_two_checkpoints_are_reported(state):
    stored = StoredJob("job", state=state)
    newest = stored.show()
    (join,) = (table for table in stored.diff(newest.sequence - 2, None) if table.table == "join")
    shown = {
        from_stored(change.key): decoded(change.after, "msgpack", newest.operators["join"]) for change in join.samples
    }
    assert isinstance(shown["hot"], Divided)
    assert shown["cold"].keys() == {"left", "right"}


def test_the_step_tester_reads_segments_too(monkeypatch):
    monkeypatch.setattr(known_ids, "SEGMENT_IDS", 2)
    op = StepTester(lambda keyed: keyed.deduplicate("once", "100 ns", by=lambda value: value))
    op.send_all([Message("k", n, n) for n in range(COUNT)])
    assert ("once/segments" in {table for table, _ in op.snapshot()}, op.state("k")) == (
        True,
        {n: n + 100 for n in range(COUNT)},
    )
