"""Which steps and sources continue which operators and sources of a Spark query, and how states are mapped."""

from __future__ import annotations

import json

import pytest

from support.internals import shard_of, to_stored
from tidewheel import Job, StatefulLogic, sinks, sources
from tidewheel._checkpoint.spark_folder import spark_folder
from tidewheel._imports.imported_step import ImportedStep
from tidewheel._imports.migration import (
    FromSpark,
    SparkState,
    StepMigration,
    assigned,
    entries_of,
    kept,
    source_position,
    unclaimed,
)
from tidewheel._state.sorted_runs import SortedRuns
from tidewheel._state.timers import Timer, decode
from tidewheel.errors import ConfigError, StateError

SECOND = 10**9


class Logic(StatefulLogic):
    def on_data(self, message, state, output):
        return state

    def on_timer(self, timer, state, output):
        return state


def step_of(**options) -> ImportedStep:
    job = Job("migrated", state="memory:migrated", n_shards=4)
    keyed = job.source("in", sources.iterable([{"user": "ada"}])).key_by("by-user", "user")
    if "logic" in options:
        keyed.stateful_op("total", options["logic"], default=0).sink("out", sinks.collect())
    else:
        keyed.stateful_map("total", lambda key, value, state: (state, state), **options).sink("out", sinks.collect())
    return ImportedStep(job.plan(), "total", 4)


def written(entries: SortedRuns) -> dict[str, list]:
    found: dict[str, list] = {}
    for shard in entries.shards():
        for table, items in entries.tables(shard):
            found.setdefault(table, []).extend((shard, *item) for item in items)
    return found


def test_one_step_continues_the_only_operator():
    assert assigned(["total"], {}, [0], "operator") == {"total": 0}
    assert assigned(["total"], {"total": None}, [3], "operator") == {"total": 3}
    assert assigned(["total"], {}, [], "operator") == {}


def test_several_operators_must_be_named():
    with pytest.raises(ConfigError, match=r"2 operators .* choose for 'a' with.*FromSpark\(operator=0\)"):
        assigned(["a", "b"], {}, [0, 1], "operator")
    with pytest.raises(ConfigError, match=r"1 operators and the program 2 names .* choose for 'a'"):
        assigned(["a", "b"], {}, [0], "operator")
    assert assigned(["a", "b"], {"b": None}, [3], "operator") == {"b": 3}
    assert assigned(["a", "b"], {"a": 1}, [0, 1], "operator") == {"a": 1}
    with pytest.raises(ConfigError, match="the query has no operator 2; there are 0, 1"):
        assigned(["a"], {"a": 2}, [0, 1], "operator")


def test_two_names_cannot_continue_the_same_source():
    with pytest.raises(ConfigError, match=r"'a' and 'b' both continue source 0 .*FromSpark\(source=N\)"):
        assigned(["a", "b"], {"a": 0, "b": 0}, [0, 1], "source")


def test_a_source_of_the_query_that_no_name_continues_is_refused():
    """The job would read it from its beginning, on top of state that has its records already."""
    found = {0: "files", 1: "kafka"}
    chosen = assigned(["a", "b"], {"a": 0}, list(found), "source")
    (refusal,) = unclaimed(chosen, found, "source")
    assert refusal.startswith("source 1 (kafka) is continued by no source of the program: name it in migrations")
    assert "FromSpark(source=1)" in refusal
    assert refusal.endswith("--without-source 1")
    assert unclaimed(chosen, kept(found, [1], "source"), "source") == []


def test_leaving_behind_an_operator_that_the_query_lacks_is_refused():
    assert kept({0: "dedupe", 2: "join"}, [2], "operator") == {0: "dedupe"}
    with pytest.raises(ConfigError, match="--without-operator 1: the query has no operator 1; there are 0, 2"):
        kept({0: "dedupe", 2: "join"}, [1], "operator")


def test_a_name_that_the_program_lacks_is_refused():
    with pytest.raises(ConfigError, match=r"migrations has 'totl', .* there are 'in', 'total'"):
        entries_of({"totl": lambda old: None}, ["in", "total"], "job 'x'")


def test_states_are_mapped_and_keys_without_one_are_left_out():
    migration = StepMigration(step_of(default=0), FromSpark(lambda old: old.value or None), "wall")
    with SortedRuns() as entries:
        migration.add(entries, SparkState("ada", {"n": 7}), 1)
        migration.add(entries, SparkState("bob", {"n": 0}), 1)
        assert [row[:2] for row in written(entries)["total"]] == [(shard_of("ada", 4), to_stored("ada"))]
    assert (migration.step.count, migration.left_out) == (1, 1)
    assert "1 keys are left out" in migration.notes()[0]
    assert migration.samples == [(SparkState("ada", {"n": 7}), 7)]


def test_a_function_that_fails_is_named_with_its_key():
    migration = StepMigration(step_of(default=0), FromSpark(lambda old: old.values["missing"]), "wall")
    with SortedRuns() as entries, pytest.raises(StateError, match=r"step 'total' failed on key 'ada': KeyError"):
        migration.add(entries, SparkState("ada", {}), 0)


def test_a_state_of_another_type_is_refused():
    migration = StepMigration(step_of(state=int), FromSpark(), "wall")
    with SortedRuns() as entries, pytest.raises(StateError, match="key 'ada' does not fit what 'total' declares"):
        migration.add(entries, SparkState("ada", {"name": "x"}), 0)


def test_timers_go_to_a_logic_that_handles_them():
    migration = StepMigration(step_of(logic=Logic()), FromSpark(), "event")
    with SortedRuns() as entries:
        migration.add(entries, SparkState("ada", {"n": 7}, timers=(5 * SECOND,)), 0)
        (_, entry, _) = written(entries)["total/timers"][0]
    assert decode(entry) == Timer("ada", 5 * SECOND, "", "event")
    assert migration.notes() == []
    dropped = StepMigration(step_of(default=0), FromSpark(), "event")
    with SortedRuns() as entries:
        dropped.add(entries, SparkState("ada", {"n": 7}, timers=(5 * SECOND,)), 0)
        assert list(written(entries)) == ["total"]
    assert "1 timers are dropped: step 'total' has no on_timer" in dropped.notes()[0]


def test_the_latest_expiry_of_a_key_is_kept_by_a_ttl_of_the_wall_clock():
    old = SparkState("ada", {"n": 7}, expires={"n": 5 * SECOND, "pages": {"a": 9 * SECOND, "b": SECOND}})
    migration = StepMigration(step_of(default=0, ttl="1 hour", ttl_clock="wall"), FromSpark(lambda old: 7), "wall")
    with SortedRuns() as entries:
        migration.add(entries, old, 0)
        tables = written(entries)
    assert decode(tables["total/ttl-timers"][0][1]) == Timer("ada", 9 * SECOND, "", "wall")
    assert len(tables["total/expires"]) == 1


def test_a_source_continues_only_offsets_of_its_kind():
    about = json.dumps({"batchTimestampMs": 1})
    folder = spark_folder(0, None, f"v1\n{about}\n" + '{"orders":{"0":7}}\n17', {}, "here")
    kafka = sources.kafka("nowhere:9092", "orders")
    assert source_position("in", kafka, folder, 0) == ({"orders/0": 7}, [])
    with pytest.raises(StateError, match=r"source 1 of the query has the offset 17, .*--without-source 1"):
        source_position("in", kafka, folder, 1)
