"""State that is exported and imported into another job stays the same."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewheel import Job, StoredJob
from tidewheel._state.stored_types import same
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

_numbers = itertools.count()


def keeping(states: dict[Any, Any]) -> Job:
    """Return a job whose step keeps for each key the state that is given for it."""
    job = Job("kept", state=f"memory:exported-{next(_numbers)}", n_shards=4)
    keys = list(states)
    keyed = job.source("in", iterable([]), type=dict).key_by("by", lambda record: keys[record["at"]])
    keyed.stateful_map("s", lambda key, record, state: (None, states[key])).sink("out", discard())
    return job


def stored(states: dict[Any, Any]) -> StoredJob:
    job = keeping(states)
    with MemoryRun(job) as run:
        run.batch({"in": [{"at": at} for at in range(len(states))]})
    return StoredJob("kept", state=job.state)


def imported(states: dict[Any, Any], rows: Any) -> dict[Any, Any]:
    job = keeping(states)
    job.import_state("s", rows)
    return dict(StoredJob("kept", state=job.state).scan("s"))


def check_same(states: dict[Any, Any], path: Path) -> None:
    assert stored(states).export("s", path) == len(states)
    found = imported(states, path)
    assert found.keys() == states.keys()
    assert all(same(states[key], found[key]) for key in states), (states, found)


def test_a_field_of_one_state_among_thousands_is_exported(tmp_path):
    states: dict[str, Any] = {f"k{n}": {"n": n, "d": {"a": 1}} for n in range(3000)}
    states["special"] = {"n": 7, "d": {"a": 1, "z": 9}, "refund": 500}
    check_same(states, tmp_path / "s.parquet")
    table = pq.read_table(tmp_path / "s.parquet")
    (row,) = [row for row in table.to_pylist() if row["key"] == "special"]
    assert row["refund"] == 500
    assert row["d"] == {"a": 1, "z": 9}


def test_tuple_keys_of_several_lengths_stay_different_keys(tmp_path):
    check_same(
        {("a", "k7"): 1, ("a", "k7", "x"): 2, **{("a", f"n{n}"): n for n in range(2000)}}, tmp_path / "s.parquet"
    )


@pytest.mark.parametrize("state", [7, 2.5, "text", {"n": 1, "name": "ada"}])
def test_plain_states_need_no_further_column(tmp_path, state):
    check_same({"a": state, "b": state}, tmp_path / "s.parquet")
    assert "~exact" not in pq.read_schema(tmp_path / "s.parquet").names


def test_a_row_that_was_changed_after_the_export_is_imported_as_changed(tmp_path):
    states = {"a": {"n": 1}, "b": {"n": 2, "extra": 3}}
    stored(states).export("s", tmp_path / "s.parquet")
    rows = pq.read_table(tmp_path / "s.parquet").to_pylist()
    changed = [row | {"n": 100} if row["key"] == "a" else row for row in rows]
    assert imported(states, pa.Table.from_pylist(changed)) == {
        "a": {"n": 100, "extra": None},
        "b": {"n": 2, "extra": 3},
    }


SCALARS = (
    st.integers(-5, 2**60)
    | st.sampled_from([0.5, "", "ü", b"\x00", True, None, Decimal("1.50"), date(2026, 3, 1)])
    | st.sampled_from([datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 12)])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "key", "value"]) | st.integers(0, 2), inner, max_size=2)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers(0, 3), max_size=2)
    ),
    max_leaves=4,
)
STATES = VALUES.filter(lambda value: value is not None)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.dictionaries(st.sampled_from("abc"), STATES, min_size=1, max_size=3))
def test_states_of_all_types_come_back_unchanged(tmp_path, texts):
    check_same(texts, tmp_path / "s.parquet")
