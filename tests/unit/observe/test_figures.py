"""The figures of a commit, from tasks' reports to a record: a whole job in memory."""

from __future__ import annotations

import pytest

from tidewheel import Job, sinks, sources
from tidewheel._engine.figures import Figures, StateSizes, operator_records
from tidewheel._observe.records import CommitRecord, Stored
from tidewheel.testing import MemoryRun


class Kept:
    def __init__(self) -> None:
        self.records: list[CommitRecord] = []

    def committed(self, record: CommitRecord) -> None:
        self.records.append(record)


def totals(name: str = "totals") -> Job:
    job = Job(name, state=f"memory:{name}")
    job.dead_letter("dead", sinks.collect())
    numbers = job.source("in", sources.iterable([])).key_by("by-user", "user", value="cents")
    totals = numbers.stateful_map("total", lambda user, cents, total: (total + 1 // cents, total + cents), default=0)
    totals.filter("large", lambda total: total > 5).sink("out", sinks.collect())
    return job


@pytest.fixture
def kept():
    return Kept()


def run_of(job: Job, kept: Kept, **options) -> MemoryRun:
    run = MemoryRun(job, **options)
    run.run.figures = Figures(run.plan, [kept])
    return run


ROWS = [{"user": f"u{number % 7}", "cents": number % 4} for number in range(40)]


def test_rows_are_those_that_an_independent_count_finds(kept):
    with run_of(totals("rows"), kept, parallelism=3, partitions=2) as run:
        run.batch({"in": ROWS[:15]})
        run.batch({"in": ROWS[15:]})
    good = [row for row in ROWS if row["cents"]]
    total: dict[str, int] = {}
    out = 0
    for row in good:
        total[row["user"]] = total.get(row["user"], 0) + row["cents"]
        out += total[row["user"]] - row["cents"] + 1 // row["cents"] > 5
    summed = {
        name: sum(record.rows_in.get(name, 0) for record in kept.records)
        for name in ("in", "by-user", "total", "large", "out")
    }
    assert [record.rows for record in kept.records] == [15, 25]
    assert summed == {"in": 40, "by-user": 40, "total": 40, "large": len(good), "out": out}
    assert sum(record.rows_out.get("out", 0) for record in kept.records) == out
    assert sum(record.rows_out["total"] for record in kept.records) == len(good)
    assert sum(record.dead["total"] for record in kept.records) == len(ROWS) - len(good)
    assert kept.records[-1].events == 40


def test_records_that_fail_an_expectation_are_counted_by_commit(kept):
    job = Job("expected", state="memory:unit-figures")
    orders = job.source("in", sources.iterable([]))
    orders.expect("paid", lambda row: row.cents > 0, otherwise="warn").sink("out", sinks.collect())
    with run_of(job, kept) as run:
        run.batch({"in": ROWS[:15]})
        run.batch({"in": ROWS[1:2]})
    assert [record.failed for record in kept.records] == [{"paid": 4}, {}]


def test_steps_and_operators_take_time_and_the_steps_are_the_whole(kept):
    with run_of(totals("steps"), kept) as run:
        run.batch({"in": ROWS})
    (record,) = kept.records
    assert set(record.phases) == {"commit", "publish"}
    assert sum(record.phases.values()) == pytest.approx(record.seconds)
    assert set(record.busy) == {"in", "by-user", "total", "large", "out", "dead"}
    assert all(seconds >= 0 for seconds in record.busy.values())


def test_keys_and_bytes_are_counted_by_operator_and_shard(kept):
    job = totals("sizes")
    with run_of(job, kept) as run:
        run.batch({"in": [row for row in ROWS if row["cents"]]})
        run.batch({"in": [{"user": "u1", "cents": 1}]})
    first, second = kept.records
    assert first.stored["total"].keys == second.stored["total"].keys == 7
    assert second.stored["total"].bytes > 0
    assert sum(size.keys for size in first.shards["total"].values()) == 7
    assert second.shards == {}, "the sizes of all shards are not in every record"
    assert first.changed == {"total": 7}
    assert second.changed == {"total": 1}
    assert first.deltas == len(first.shards["total"])
    assert first.delta_bytes > 0


def test_keys_of_a_step_with_a_ttl_are_counted_once(kept):
    job = Job("ttl-sizes", state="memory:ttl-sizes")
    numbers = job.source("in", sources.iterable([])).key_by("by-user", "user", value="cents")
    kept_for = {"default": 0, "ttl": "1 day", "ttl_clock": "wall"}
    numbers.stateful_map("total", lambda user, cents, total: (total, total + cents), **kept_for).sink(
        "out", sinks.discard()
    )
    with run_of(job, kept) as run:
        run.batch({"in": ROWS})
        run.batch({"in": ROWS})
        run.batch({"in": ROWS})
    assert [record.stored["total"].keys for record in kept.records] == [7, 7, 7]


def test_a_later_run_knows_the_sizes_of_shards_that_it_has_not_opened(kept):
    job = totals("recalled")
    with run_of(job, kept) as run:
        run.batch({"in": [row for row in ROWS if row["cents"]]})
    with run_of(job, kept) as run:
        run.run.figures.recall(kept.records[0].shards)
        run.batch({"in": [{"user": "u1", "cents": 1}]})
    assert kept.records[-1].stored["total"].keys == 7
    # The states that the first run had in memory are read from a copy.
    assert kept.records[-1].caught_up_bytes > 0


def test_new_sizes_replace_the_old_ones():
    sizes = StateSizes()
    sizes.put("total", 0, Stored(5, 50))
    sizes.put("total", 1, Stored(1, 10))
    sizes.put("total", 0, Stored(3, 30))
    sizes.seed(
        {"total": {1: Stored(9, 9), 2: Stored(2, 20), 3: Stored(7, 7)}, "gone": {0: Stored(1, 1)}}, ["total"], {0, 1, 2}
    )
    assert sizes.totals == {"total": Stored(6, 60)}


def test_a_failing_receiver_of_figures_does_not_affect_others(kept, caplog):
    class Fails:
        def committed(self, record):
            raise RuntimeError("no")

    with MemoryRun(totals("fails")) as run:
        run.run.figures = Figures(run.plan, [Fails(), kept])
        run.batch({"in": ROWS})
    assert len(kept.records) == 1
    assert "Fails did not take the figures of commit 2" in caplog.text


def test_the_graph_is_recorded_with_its_levels_and_inputs():
    graph = {record.name: record for record in operator_records(totals("graph").plan())}
    assert (graph["in"].kind, graph["in"].level, graph["in"].inputs) == ("source", 0, ())
    assert (graph["total"].kind, graph["total"].level, graph["total"].stateful) == ("stateful_map", 1, True)
    assert graph["out"].inputs == (("large", 0),)


def test_steps_have_the_names_of_the_program():
    job = Job("words", state="memory:words")
    timed = job.source("in", sources.iterable([])).assign_timestamps("at", "at", unit="ns")
    on_time = timed.limit_out_of_orderness("bound", "0 s")
    for number, each in enumerate(on_time.branch("cut", lambda row: row["n"] > 0, lambda row: row["n"] < 0)):
        each.sink(f"out-{number}", sinks.discard())
    told = {record.name: record.kind for record in operator_records(job.plan())}
    assert (told["bound"], told["cut"]) == ("limit_out_of_orderness", "branch")
    assert "limit_out_of_orderness" in job.graph.text()


def test_a_few_dead_letters_are_shown_with_their_line_without_secrets(kept):
    job = Job("letters", state="memory:letters")
    job.dead_letter("dead", sinks.collect())

    def refuse(row):
        raise ValueError("cannot reach nats://ada:s3cret@host:4222")

    job.source("in", sources.iterable([])).map("refuse", refuse).sink("out", sinks.discard())
    with run_of(job, kept, parallelism=2, partitions=2) as run:
        run.batch({"in": [{"text": "x" * 10_000}] * 50})
    (record,) = kept.records
    assert record.dead == {"refuse": 50}
    assert 0 < len(record.letters) <= 10
    letter = record.letters[0]
    assert (letter.step, len(letter.record) <= 500) == ("refuse", True)
    assert "refuse" in letter.traceback
    assert "s3cret" not in repr(record)


def test_key_counts_follow_the_newest_commit_also_after_drops(kept):
    job = Job("newest", state="memory:newest")
    numbers = job.source("in", sources.iterable([])).key_by("by-user", "user", value="cents")
    held = numbers.stateful_map("held", lambda user, cents, last: (cents, cents or None), default=0)
    held.key_by("by-cents", lambda cents: cents % 2).reduce("largest", max).sink("out", sinks.discard())
    with run_of(job, kept, parallelism=2) as run:
        run.batch({"in": [{"user": f"u{number}", "cents": 1} for number in range(100)]})
        run.batch({"in": [{"user": f"u{number}", "cents": 2} for number in range(50, 150)]})
        run.batch({"in": [{"user": f"u{number}", "cents": 0} for number in range(120)]})
    keys = [{name: size.keys for name, size in record.stored.items()} for record in kept.records]
    assert keys == [{"held": 100, "largest": 1}, {"held": 150, "largest": 2}, {"held": 30, "largest": 2}]


def test_bytes_are_pages_of_local_copies_also_before_these_are_made(kept):
    with run_of(totals("bytes"), kept) as run:
        run.batch({"in": [{"user": "ada", "cents": 1}]})
    assert kept.records[0].stored["total"] == Stored(1, 4096)


def test_keys_added_before_a_shards_count_is_known_are_counted():
    sizes = StateSizes()
    sizes.grow("total", 0, 2)
    sizes.seed({"total": {0: Stored(5, 50)}}, ["total"], {0})
    sizes.grow("total", 0, -1)
    assert sizes.totals == {"total": Stored(6, 50)}
