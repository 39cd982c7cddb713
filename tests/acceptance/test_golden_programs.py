"""Every example, and every program of the acceptance and chaos tests, gives the same whatever happens to it."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

from acceptance.test_a2_stateful_op import Pairs, Ticking
from tidewheel import Job, sum_
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import golden

ROOT = Path(__file__).parents[2]
SEED = 20261115


def loaded(path: Path, monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_clicks_example(monkeypatch, tmp_path):
    draw = random.Random(SEED)
    clicks = [{"user": f"user-{draw.randrange(20)}", "cents": draw.randrange(5000)} for _ in range(200)]
    result = golden(loaded(ROOT / "examples" / "clicks.py", monkeypatch, tmp_path).job, {"clicks": clicks}, seed=SEED)
    assert sum(totals.clicks for totals in result.states["totals"].values()) == 200


EXAMPLES = {
    # Which records are late depends on where batches end.
    "windows": ({"sales": "SALES"}, {"batch_size": 3}),
    "sessions": ({"clicks": "CLICKS"}, {"batch_size": 2}),
    "joins": ({"orders": "ORDERS", "payments": "PAYMENTS", "rates": "RATES"}, {}),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_with_time(name, monkeypatch, tmp_path):
    sources, options = EXAMPLES[name]
    module = loaded(ROOT / "examples" / f"{name}.py", monkeypatch, tmp_path)
    inputs = {source: getattr(module, records) for source, records in sources.items()}
    result = golden(module.job, inputs, seed=SEED, **options)
    assert result.outputs["out"]


def test_every_example_is_here():
    known = {"clicks", "demo", *EXAMPLES}
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} <= known, "put the new example through golden"


def test_the_chaos_program(monkeypatch, tmp_path):
    draw = random.Random(SEED)
    records = [{"user": f"user-{draw.randrange(12)}", "amount": draw.randrange(-50, 100)} for _ in range(200)]
    program = loaded(ROOT / "tests" / "chaos" / "program.py", monkeypatch, tmp_path)
    golden(lambda: program.build("/data"), {"in": records}, seed=SEED)


def keyed(key, build):
    def make():
        job = Job("program", n_shards=8, snapshot_every=2)
        build(job.source("in", iterable([0])).key_by("key", key)).sink("out", collect())
        return job

    return make


def joined(length, word, so_far):
    return so_far + word, None if len(so_far + word) >= 6 else so_far + word


def last(message, state, output):
    output.emit(state)
    return int(message.value)


PROGRAMS = {
    "a1 sum": (keyed(lambda n: n % 2, lambda s: s.stateful_map("sum", lambda k, v, t: (t + v, t + v), default=0)), {}),
    "a2 pairs": (keyed(lambda n: n % 3, lambda s: s.stateful_op("pairs", Pairs(), default=0)), {}),
    "a2 function": (keyed(lambda n: n % 5, lambda s: s.stateful_op("last", last, default=0)), {}),
    # It counts batches, so they must end where they ended before.
    "a2 ticking": (keyed(lambda n: n, lambda s: s.stateful_op("tick", Ticking(), default=0)), {"batch_size": 11}),
    "a6 order": (keyed(lambda n: n % 7, lambda s: s.stateful_map("up", lambda k, v, b: (v > b, v), default=-1)), {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_numbers(name):
    make, options = PROGRAMS[name]
    golden(make, {"in": list(range(101))}, seed=SEED, **options)


def test_a1_words():
    words = ["foo", "bar", "hello", "world", "baz"] * 20
    golden(keyed(len, lambda s: s.stateful_map("join", joined, default="")), {"in": words}, seed=SEED)


def test_a5_state_that_is_dropped_and_an_aggregate_beside_it():
    def make():
        job = Job("program", n_shards=4, snapshot_every=2, keep=2, collect_every=3)
        by = job.source("in", iterable([]), value=dict).key_by("by", "of")
        by.stateful_map("sum", lambda k, r, s: (s + r["n"], (s + r["n"]) or None), default=0).sink("one", collect())
        by.aggregate("total", total=sum_("n")).sink("two", collect())
        by.key_by("n", lambda r: r["n"]).reduce("most", lambda a, b: max(a, b, key=lambda r: r["of"])).sink(
            "three", collect()
        )
        return job

    draw = random.Random(SEED)
    records = [{"of": draw.randrange(6), "n": draw.randrange(-3, 4)} for _ in range(150)]
    golden(make, {"in": records}, seed=SEED)
