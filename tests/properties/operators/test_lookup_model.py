"""Look-ups against a dict: random versions of a table, batches, crashes and restarts."""

from __future__ import annotations

import random
from functools import partial

import pyarrow as pa
import pytest

from support.internals import faults
from tidewheel import Job, sinks, sources
from tidewheel._engine import table_loading
from tidewheel._values.keyed_table import KeyedTable, hashes_of, key_column
from tidewheel._values.parted_table import PartedTable, part_of_each
from tidewheel.testing import MemoryRun

SEED = 20261118
POINTS = ("tables.stored", "tables.pinned", "task.started", "commit.before", "commit.created")


def drawn_key(draw: random.Random, kind: str):
    number = draw.randrange(60)
    return {"int": number - 30, "str": f"key-{number}" * (number % 4), "bytes": bytes([number])}[kind]


@pytest.mark.parametrize("divided", [False, True], ids=["whole", "divided"])
@pytest.mark.parametrize("kind", ["int", "str", "bytes"])
def test_lookups_agree_with_a_dict(kind, divided, monkeypatch):
    if divided:
        monkeypatch.setattr(table_loading, "WHOLE_BYTES", 0)
    print(f"seed {SEED}")
    draw = random.Random(f"{SEED}/{kind}")
    model: dict = {}
    job = Job("model", state=f"memory:lookup-model-{kind}-{divided}", n_shards=4, keep=2, collect_every=3, grace=0)
    schema = pa.schema({"k": pa.array([drawn_key(draw, kind)]).type, "n": pa.int64()})
    table = job.table(
        "table",
        lambda: pa.table({"k": list(model), "n": list(model.values())}, schema),
        key="k",
        refresh="batch",
    )
    how = draw.choice(["inner", "left"])
    records = job.source("in", sources.iterable([]))
    sink = sinks.collect()
    records.lookup("find", table, on="k", how=how).sink("out", sink)
    run = MemoryRun(job, parallelism=2, partitions=2)
    expected = []
    try:
        for number in range(40):
            for _ in range(draw.randrange(4)):
                key = drawn_key(draw, kind)
                if draw.random() < 0.3:
                    model.pop(key, None)
                else:
                    model[key] = draw.randrange(100)
            batch = [{"at": number, "k": drawn_key(draw, kind)} for _ in range(draw.randrange(1, 30))]
            expected += [{**row, "n": model.get(row["k"])} for row in batch if how == "left" or row["k"] in model]
            point = draw.choice((*POINTS, None, None, None))
            faults.arm("" if point is None else f"{point}=raise")
            try:
                run.batch({"in": batch})
            except faults.InjectedFault:
                run.close()
                committed = run.run.checkpoints.latest()
                faults.arm("")
                run = MemoryRun(job, parallelism=draw.randint(1, 4), partitions=2, take_over=True)
                if not (committed.kind == "batch" and point == "commit.created"):
                    run.batch({"in": batch})
            finally:
                faults.arm("")
    finally:
        run.close()
    assert sorted(map(repr, sink.records)) == sorted(map(repr, expected))


def part_of(rows, parts, part):
    return KeyedTable.of(rows.filter(pa.array(parts == part)), "ab")


def test_rows_are_found_like_in_a_dict_for_tables_of_many_sizes():
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for size in (0, 1, 2, 3, 7, 64, 1000, 5000):
        pairs = [(f"k{draw.randrange(size * 2)}", draw.randrange(3)) for _ in range(size)]
        model = {pair: draw.randrange(100) for pair in pairs}
        rows = pa.table(
            {"a": [a for a, _ in model], "b": [b for _, b in model], "n": list(model.values())},
            pa.schema({"a": pa.string(), "b": pa.int32(), "n": pa.int64()}),
        )
        whole = KeyedTable.of(rows, ["a", "b"])
        parts = part_of_each(hashes_of([key_column(whole.rows.column(name)) for name in "ab"]), 8)
        divided = PartedTable(8, partial(part_of, pa.Table.from_batches([whole.rows]), parts))
        asked = [(f"k{draw.randrange(size * 2 + 1)}", draw.randrange(3)) for _ in range(500)]
        keys = [pa.array([a for a, _ in asked]), pa.array([b for _, b in asked], pa.int64())]
        for table in (whole, divided):
            (found,) = table.take(table.find(keys), ["n"])
            assert found.to_pylist() == [model.get(pair) for pair in asked]
            assert table.take(table.find([key[:0] for key in keys]), ["n"])[0].to_pylist() == []
