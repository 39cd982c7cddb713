"""The messages of a key are traced to their records, through every kind of step, including dropped messages."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tidewheel import Job, RunOptions, StoredJob, agg, sinks, sources, tumbling
from tidewheel._cli.commands import app
from tidewheel._cli.program import load_job
from tidewheel.sinks import collect
from tidewheel.sources import iterable

SEED = 29


@dataclass
class Click:
    user: str
    id: int
    at: int
    site: str = "a"


CLICKS = [
    *(Click("ada" if n % 2 else "bob", n, n * 10, "ab"[n % 3 == 0]) for n in range(20)),
    Click("ada", 7, 195),  # A duplicate of the one at 70.
    Click("ada", 30, 200),
    Click("ada", -1, 210),  # The filter drops it.
    Click("bob", 31, 220),
    *(Click("bob", 40 + n, 300 + n) for n in range(9)),
    Click("ada", 50, 5),  # Late.
    Click("ada", 51, 400),
]


def clicks(state: str) -> Job:
    job = Job("clicks", state=state, n_shards=4, keep=100)
    timed = job.source("clicks", iterable(CLICKS, batch_size=10)).event_time(
        "at", name="time", unit="ns", max_delay="50 ns"
    )
    timed.late.sink("late", collect())
    once = (
        timed.filter("real", lambda click: click.id >= 0)
        .key_by("by-user", "user")
        .deduplicate("once", by="id", horizon="1000 ns")
    )
    once.aggregate("seen", clicks=agg.count(), newest=agg.max("id")).sink("totals", collect())
    windows = once.window("hourly", tumbling("100 ns"), clicks=agg.count())
    windows.sink("hours", collect())
    windows.late.sink("late-hours", collect())
    by_site = once.map("site", lambda click: {"site": click.site, "id": click.id}).key_by("by-site", "site")
    by_site.stateful_map("ids", lambda site, click, ids: (len(ids), [*ids, click["id"]]), default=[]).sink(
        "sites", collect()
    )
    sums = once.reduce("largest", lambda one, other: max(one, other, key=lambda click: click.id))
    again = sums.key_by("largest-by-site", "site").stateful_map("results", lambda site, click, n: (n, n + 1), default=0)
    again.sink("results-out", collect())
    return job


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("explain")
    state = f"file://{folder}/state"
    clicks(state).run(until="end", parallelism=2, options=RunOptions(spark=spark, local=f"{folder}/local"))
    return state


def traced(state: str, step: str, key: str) -> list:
    stored = StoredJob("clicks", state=state)
    sequences = [manifest.sequence for manifest in stored.list() if manifest.kind == "batch"]
    return [message for sequence in sequences for message in stored.messages(clicks(state), sequence, step, key)]


REAL = [
    click.id for number, click in enumerate(CLICKS) if click.user == "ada" and click.id >= 0 and number not in (20, 33)
]


def test_dropped_messages_are_among_the_messages_of_the_key(ran):
    messages = traced(ran, "seen", "ada")
    assert [message.value.id for message in messages if message.dropped is None] == REAL
    lost = [(message.place["item"], message.dropped) for message in messages if message.dropped is not None]
    assert lost == [(20, "step 'once'"), (22, "step 'real'"), (33, "step 'time': late")]


def test_the_state_of_aggregates_is_shown_before_and_after_each_message(ran):
    messages = [message for message in traced(ran, "seen", "ada") if message.dropped is None]
    counted = [{"clicks": n + 1, "newest": max(REAL[: n + 1])} for n in range(len(REAL))]
    assert [message.after for message in messages] == counted
    assert [message.before for message in messages] == [None, *counted[:-1]]
    final = StoredJob("clicks", state=ran).get("seen", "ada").value
    assert messages[-1].after == final


def test_the_state_of_a_window_grows_with_each_message(ran):
    messages = [message for message in traced(ran, "hourly", "bob") if message.dropped is None]
    assert len(messages) == sum(click.user == "bob" for click in CLICKS)
    assert messages[0].before is None
    assert all(message.after is not None and message.after != message.before for message in messages)


def test_origins_are_known_after_a_second_shuffle(ran):
    """The step is two shuffles and a `deduplicate` away from the source."""
    messages = [message for message in traced(ran, "ids", "b") if message.dropped is None]
    expected = [number for number in range(20) if number % 3 == 0]
    assert sorted(message.place["item"] for message in messages) == expected
    assert all(message.source == "clicks" and message.value["id"] == message.place["item"] for message in messages)
    assert messages[-1].after == StoredJob("clicks", state=ran).get("ids", "b").value


def test_results_of_a_step_that_combines_have_its_name(ran):
    messages = traced(ran, "results", "a")
    assert {(message.source, message.place["step"]) for message in messages} == {(None, "largest")}
    assert messages[-1].after == StoredJob("clicks", state=ran).get("results", "a").value


@pytest.mark.slow
def test_the_history_of_a_key_among_a_million_equals_a_plain_sum(spark, tmp_path):
    """50 checkpoints; the times of `tidewheel explain` are printed."""
    draw, keys, batches = np.random.default_rng(SEED), 1_000_000, 50
    totals, expected = np.zeros(keys, dtype=np.int64), {7: [], keys - 1: []}
    (tmp_path / "in").mkdir()
    for number in range(batches):
        changed = np.arange(keys) if number == 0 else draw.choice(keys, 20_000, replace=False)
        changed = np.union1d(changed, [7]) if number % 2 else changed
        cents = draw.integers(1, 1000, len(changed))
        pq.write_table(pa.table({"key": changed, "cents": cents}), tmp_path / "in" / f"{number:02}.parquet")
        totals[changed] += cents
        for key, values in expected.items():
            if key in changed:
                values.append(int(totals[key]))
    job = Job("million", state=f"file://{tmp_path}/state", keep=1000)
    rows = job.source("in", sources.files(f"{tmp_path}/in", "parquet", max_files_per_trigger=1))
    rows.key_by("by", "key").aggregate("total", cents=agg.sum("cents")).sink("out", sinks.discard())
    job.run(until="caught-up", parallelism=2, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    stored = StoredJob("million", state=job.state)
    assert len(stored.list()) > batches
    for key, values in expected.items():
        began = time.perf_counter()
        history = stored.history("total", key)
        print(f"history of key {key}: {time.perf_counter() - began:.2f} s")
        assert [version.value["cents"] for version in history.versions] == values
    began = time.perf_counter()
    told = CliRunner().invoke(app, ["explain", "million", "total", "7", "--state", job.state, "--json"])
    print(f"tidewheel explain: {time.perf_counter() - began:.2f} s")
    assert [json.loads(line)["value"]["cents"] for line in told.output.splitlines()] == expected[7]


def test_files_have_lines_also_behind_bad_and_empty_ones(spark, tmp_path):
    (tmp_path / "in").mkdir()
    lines = ['{"user": "ada", "n": 1}', "", "no json", '{"user": "bob", "n": 2}', '{"user": "ada", "n": 3}']
    (tmp_path / "in" / "1.json").write_text("\n".join(lines))
    program = tmp_path / "lines.py"
    program.write_text(
        f"""
from tidewheel import Job, sinks, sources
job = Job("lines", state="file:{tmp_path}/state", keep=100)
rows = job.source("in", sources.files("{tmp_path}/in", format="json", schema="user string, n long"))
totals = rows.key_by("by-user", "user").stateful_map("sum", lambda user, row, sum: (sum + row.n, sum + row.n), default=0)
totals.sink("out", sinks.collect())
job.dead_letter("dead", sinks.collect())
"""
    )
    arguments = ["--state", f"file:{tmp_path}/state"]
    load_job(str(program)).run(until="caught-up", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    told = CliRunner().invoke(app, ["explain", "lines", "sum", "ada", *arguments, "--records", str(program), "--json"])
    (version,) = [json.loads(line) for line in told.output.splitlines()]
    assert [(record["place"]["line"], record["before"], record["after"]) for record in version["records"]] == [
        (1, None, 1),
        (5, 1, 4),
    ]
