"""Every Nexmark query gives what Spark SQL computes over the same events."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.nexmark.check import expected, normal
from benchmarks.nexmark.generator import AUCTION, BID, PERSON, events, write
from benchmarks.nexmark.queries import QUERIES, chosen

from tidewheel import Job, RunOptions, StoredJob
from tidewheel._engine.commit import is_computed
from tidewheel.sinks import collect
from tidewheel.sources import files
from tidewheel.testing import run_in_memory

EVENTS = 3000


def test_events_depend_on_their_number_alone_and_are_2_6_and_92_percent():
    all_of_them = events(0, 1000).to_pylist()
    assert events(0, 130).to_pylist() + events(130, 870).to_pylist() == all_of_them
    kinds = [event["kind"] for event in all_of_them]
    assert [kinds.count(kind) for kind in (PERSON, AUCTION, BID)] == [20, 60, 920]
    known = set()
    for event in all_of_them:
        if event["kind"] == BID:
            assert (AUCTION, event["auction"]) in known
            assert (PERSON, event["bidder"]) in known
        else:
            known.add((event["kind"], event["id"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("nexmark")
    write(path, EVENTS, 1000)
    return path


@pytest.mark.parametrize("query", QUERIES)
def test_query(query, spark, folder):
    job = Job(f"nexmark-{query}", state="memory:nexmark")
    QUERIES[query](chosen(job.source("events", lambda spark: None), query)).sink("results", collect())
    rows = events(0, EVENTS).to_pylist()
    batches = [{"events": rows[at : at + 700]} for at in range(0, len(rows), 700)]
    result = run_in_memory(job, batches, parallelism=2)
    got = normal(result.outputs["results"], query)
    assert got
    assert got == expected(spark, spark.read.parquet(str(folder)), query)


@pytest.mark.parametrize("query", ["q5", "q8"])
def test_query_on_spark(query, spark, folder, tmp_path):
    job, out = Job(f"nexmark-{query}", state=f"file://{tmp_path}/state"), collect()
    QUERIES[query](chosen(job.source("events", files(str(folder), max_files_per_trigger=1)), query)).sink(
        "results", out
    )
    job.run(until="end", parallelism=2, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert normal(out.records, query) == expected(spark, spark.read.parquet(str(folder)), query)


@pytest.mark.parametrize("query", QUERIES)
def test_every_batch_of_a_query_gives_the_same_again(query, spark, folder, tmp_path):
    job = Job(f"nexmark-{query}", state=f"file://{tmp_path}/state", keep=100)
    source = job.source("events", files(str(folder), format="parquet", max_files_per_trigger=1))
    QUERIES[query](chosen(source, query)).sink("results", collect())
    job.run(until="end", parallelism=2, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    stored = StoredJob(job.name, state=job.state)
    results = [stored.replay(job, manifest.sequence) for manifest in stored.list() if is_computed(manifest.kind)]
    assert len(results) >= EVENTS // 1000
    assert [result for result in results if not result.same] == []
