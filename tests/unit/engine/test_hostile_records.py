"""No record ends a job with a dead-letter sink: each is accepted or rejected with its reason, and all others arrive."""

from __future__ import annotations

import json
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.hostile_records import GOOD, HOSTILE, NAMES, run
from tidewheel import StatefulLogic, codecs, count, max_, sinks, sum_, tumbling
from tidewheel.testing import MemoryRun


class Timed(StatefulLogic):
    def on_data(self, message, state, output):
        output.set_timer(message.time + 5)
        return message.value["v"]

    def on_timer(self, timer, state, output):
        output.emit({"id": timer.time - 1_005, "v": 1 // (state + 1)})


def timed(records, time="at"):
    return records.assign_timestamps("t", time, unit="ns").limit_out_of_orderness("b", "1 s", max_ahead=None)


def keyed(records):
    return records.key_by("by", "k")


def pair(left, right):
    return {"id": left["id"], "sum": left["v"] + right["v"]}


STEPS = {
    "map": lambda job, s: s.map("m", lambda r: {**r, "w": r["v"] + 1}),
    "filter": lambda job, s: s.filter("f", lambda r: r["v"] is None or r["v"] >= 0),
    "flat_map": lambda job, s: s.flat_map("f", lambda r: [r] * r["v"].bit_length() if r["id"] else [r]),
    "inspect": lambda job, s: s.inspect("i", lambda r: str(r["v"])),
    "split": lambda job, s: s.split("s", 2, lambda r: 0 if hash(r["v"]) else 1)[0],
    "union": lambda job, s: s.union("u", s.filter("none", lambda r: False)),
    "expression": lambda job, s: s.filter("e", pc.field("v") >= 0),
    "with_columns": lambda job, s: s.with_columns("c", w=pc.field("v") + 1).map("d", lambda row: {"id": row.id}),
    "map_batches": lambda job, s: s.map_batches("b", lambda b: b.select(["id", "v"])).map("d", lambda r: {"id": r.id}),
    "key_by column": lambda job, s: s.key_by("by", "v").map("v", lambda r: r),
    "key_by function": lambda job, s: s.key_by("by", lambda r: r["v"]).map("v", lambda r: r),
    "key_by value": lambda job, s: s.key_by("by", "id", value="v").map(
        "v", lambda v: {"id": v if type(v) is int else 0}
    ),
    "shuffle": lambda job, s: keyed(s).map("v", lambda r: r),
    "assign_timestamps": lambda job, s: s.assign_timestamps("t", "v", unit="ns"),
    "assign by function": lambda job, s: s.assign_timestamps("t", lambda r: r["v"], unit="ns"),
    "partition function": lambda job, s: timed_by(s, lambda r: r["v"]),
    "partition column": lambda job, s: timed_by(s, "v"),
    "stateful_map": lambda job, s: keyed(s).stateful_map("m", lambda k, r, s: (r, r["v"]), default=None),
    "stateful_map list": lambda job, s: keyed(s).stateful_map("m", lambda k, r, s: (r, [*s, r["v"]]), default=list),
    "stateful_op": lambda job, s: keyed(s).stateful_op("m", lambda m, s, o: o.emit(m.value) or m.value, default=None),
    "on_timer": lambda job, s: timed(s).key_by("by", "id").stateful_op("m", Timed(), default=0),
    "ttl": lambda job, s: keyed(timed(s)).stateful_map("m", lambda k, r, s: (r, r["v"]), default=0, ttl="1 s"),
    "ttl_map": lambda job, s: keyed(timed(s)).ttl_map(
        "m", lambda m, e: e.put("v", m.value["v"], m.time + 5) or m.value
    ),
    "deduplicate": lambda job, s: keyed(timed(s)).deduplicate("d", "1 s", by=lambda r: r["v"]),
    "interval_join": lambda job, s: keyed(timed(s)).interval_join(
        "j", keyed2(s), before="1 s", after="1 s", function=pair
    ),
    "window_join": lambda job, s: keyed(timed(s)).window_join("j", keyed2(s), tumbling("1 s"), function=pair),
    "as_of_join": lambda job, s: keyed(timed(s)).as_of_join("j", keyed2(s), function=pair),
    "window": lambda job, s: keyed(timed(s)).window(
        "w", tumbling("1 s"), lambda seen, r: [*seen, r["v"]], default=list
    ),
    "reduce": lambda job, s: s.key_by("by", "k", value="v").reduce("r", lambda a, b: a + b),
}


def timed_by(records, partition):
    return records.assign_timestamps("t", "at", unit="ns").limit_out_of_orderness(
        "b", "1 s", max_ahead=None, partition=partition
    )


def keyed2(records):
    return timed2(records).key_by("by2", "k")


def timed2(records):
    return records.assign_timestamps("t2", "at", unit="ns").limit_out_of_orderness("b2", "1 s", max_ahead=None)


WHOLE = {"interval_join", "window_join", "as_of_join", "window", "reduce", "key_by value", "split", "deduplicate"}
"""Steps whose output is not one record for each record."""
FILTERS = {"filter", "expression", "flat_map"}


@pytest.mark.parametrize("step", STEPS)
def test_no_record_ends_a_job_at_any_step(step):
    ids, dead = run(lambda job, records: as_ids(step, STEPS[step](job, records)))
    assert all(letter["error"] for letter in dead)
    named = {json.loads(letter["record"]).get("id") for letter in dead if letter["record"].startswith("{")}
    named |= {int(letter["key"]) for letter in dead if step == "on_timer" and letter["step"] == "m"}
    if step not in WHOLE:
        assert set(range(GOOD)) <= set(ids)
        assert step in FILTERS or set(ids) | named >= set(range(GOOD + len(NAMES)))
        assert not set(ids) & (named - {None})
    elif step not in ("window", "reduce", "key_by value"):
        assert set(range(GOOD)) <= set(ids) | {0}


def as_ids(step, stream):
    if step in ("window", "reduce"):
        return stream.map("some", lambda result: {"id": 0})
    return stream


AGGREGATES = {
    "aggregate": lambda s: keyed(s).aggregate("a", total=sum_("v"), n=count(), top=max_("v")),
    "window of aggregates": lambda s: keyed(timed(s)).window("a", tumbling("1 s"), total=sum_("v"), n=count()),
}


@pytest.mark.parametrize("step", AGGREGATES)
def test_no_record_ends_a_job_that_aggregates(step):
    out = sinks.collect()
    _, dead = run(lambda job, records: AGGREGATES[step](records).sink("totals", out) and None)
    newest = {row["k"]: row["n"] for row in out.records}
    # Partial results that left 64 bits are put aside as one.
    counted = sum(json.loads(letter["record"]).get("rows:", 1) for letter in dead)
    assert sum(newest.values()) + counted == GOOD + len(NAMES)
    assert sum(newest.values()) >= GOOD - 4


def test_payloads_that_decode_and_do_not_fit_are_put_aside():
    payloads = [
        b'{"id": 0, "n": 1}',
        b'{"id": 1, "n": 1180591620717411303424}',
        b'{"id": 2, "n": ' + b"9" * 5_000 + b"}",
        b'{"id": 3, "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"id": 4, "n": "\\ud800"}',
        b"\xff",
        b'{"id": 6, "n": 2}',
    ]
    from tidewheel import Job

    out, dead, broken = sinks.collect(), sinks.collect(), sinks.collect()
    job = Job("payloads", state=f"memory:{uuid.uuid4().hex}", n_shards=2)
    job.dead_letter("dead", dead)
    decoded = job.source("in", lambda spark: None).decode("json", codecs.json())
    decoded.broken.sink("broken", broken)
    keyed_ = decoded.key_by("by", "id")
    keyed_.stateful_map("last", lambda k, r, s: ({"n": r["n"]}, r["n"]), default=None).sink("out", out)
    with MemoryRun(job) as memory:
        memory.batch({"in": [{"value": payload} for payload in payloads]})
    assert {row["id"] for row in out.records} >= {0, 6}
    assert len(out.records) + len(dead.records) + len(broken.records) == len(payloads)


def test_columns_with_times_that_python_lacks_are_put_aside():
    from tidewheel import Job

    far = pa.array([0, 2**62, 10], pa.int64()).cast(pa.timestamp("us"), safe=False)
    out, dead = sinks.collect(), sinks.collect()
    job = Job("times", state=f"memory:{uuid.uuid4().hex}", n_shards=2)
    job.dead_letter("dead", dead)
    stream = job.source("in", lambda spark: None).map_batches(
        "far", lambda batch: pa.RecordBatch.from_arrays([batch["value"], far.take(batch["value"])], ["id", "at"])
    )
    stream.sink("all", out)
    stream.map("m", lambda row: {"id": row.id, "year": row.at.year}).sink("ids", ids := sinks.collect())
    with MemoryRun(job) as memory:
        memory.batch({"in": [0, 1, 2]})
    assert [row["id"] for row in out.records] == [row["id"] for row in ids.records] == [0, 2]
    assert [letter["step"] for letter in dead.records] == ["all", "m"]


def test_the_generator_covers_all_kinds():
    assert len(HOSTILE) == len(NAMES) > 20
