"""No record ends a job at its sink, nor at the sink of its dead letters: each is taken or put aside, and all others arrive."""

from __future__ import annotations

import json
import uuid

import pytest

from servers.mqtt_server import running_broker
from servers.nats_server import nats  # noqa: F401
from support.hostile_records import GOOD, NAMES, record
from tidewheel import Job, sinks
from tidewheel.testing import MemoryRun

ALL = set(range(GOOD + len(NAMES)))


def run(sink, dead=None):
    """Send every record to the sink, in two batches; return the ids that its dead letters name."""
    letters = sinks.collect()
    job = Job(f"hostile-{uuid.uuid4().hex[:8]}", state=f"memory:{uuid.uuid4().hex}", n_shards=4)
    job.dead_letter("dead", letters if dead is None else dead)
    job.source("in", lambda spark: None).map("make", lambda row: record(row.value)).sink("out", sink)
    with MemoryRun(job, parallelism=2) as memory:
        for batch in range(2):
            memory.batch({"in": [number for number in ALL if number % 2 == batch]})
    assert all(letter["error"] for letter in letters.records)
    return ids_of(letters.records)


def ids_of(letters):
    return {json.loads(letter["record"])["id"] for letter in letters if letter["record"].endswith("}")}


def written(folder, format="json"):
    from pyarrow import parquet

    files = [folder / file for file in sinks.whole_files(folder)]
    if format == "parquet":
        return [row for file in files for row in parquet.ParquetFile(file).read(columns=["id"]).to_pylist()]
    return [json.loads(line) for file in files for line in file.read_text().split("\n") if line]


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_files(format, tmp_path):
    dead = run(sinks.files(str(tmp_path / "out"), format))
    arrived = [row["id"] for row in written(tmp_path / "out", format)]
    assert len(arrived) == len({*arrived})
    assert set(range(GOOD)) <= {*arrived} == ALL - dead


def test_folders_of_partitions(tmp_path):
    dead = run(sinks.files(str(tmp_path / "out"), "json", partition_by="v"))
    arrived = {row["id"] for row in written(tmp_path / "out")}
    assert set(range(GOOD)) <= arrived == ALL - dead


def test_delta(tmp_path):
    from deltalake import DeltaTable

    dead = run(sinks.delta(str(tmp_path / "table")))
    arrived = set(DeltaTable(tmp_path / "table").to_pyarrow_table()["id"].to_pylist())
    assert set(range(GOOD)) <= arrived == ALL - dead


def test_functions_and_the_console(capsys):
    seen = []
    dead = run(sinks.for_each(seen.append))
    assert set(range(GOOD)) <= {row["id"] for row in seen} == ALL - dead
    run(sinks.console(limit=None))
    assert "id=0 " in capsys.readouterr().out


def test_postgres(postgres):
    table = f"hostile_{uuid.uuid4().hex[:8]}"
    postgres.query(f"CREATE TABLE {table} (id bigint, k text, v bigint, at bigint)")
    dead = run(sinks.postgres(postgres.dsn, table, create=False))
    arrived = {row[0] for row in postgres.query(f"SELECT id FROM {table}")}
    assert set(range(GOOD)) <= arrived == ALL - dead


def test_dead_letters_in_postgres(postgres):
    table = f"letters_{uuid.uuid4().hex[:8]}"
    seen = []
    run(sinks.for_each(seen.append), sinks.postgres(postgres.dsn, table, create=True))
    letters = [{"record": row[0]} for row in postgres.query(f"SELECT record FROM {table}")]
    assert {row["id"] for row in seen} | ids_of(letters) == ALL


def test_nats(nats):  # noqa: F811
    name = f"s-{uuid.uuid4().hex}"
    nats.make_stream(name, allow_atomic=True)
    dead = run(sinks.nats(nats.server, f"{name}.out.{{v}}"))
    assert len(dead) < len(ALL)
    assert not dead & set(range(GOOD))


def test_dead_letters_that_are_too_large_for_their_sink_are_cut(nats):  # noqa: F811
    name = f"s-{uuid.uuid4().hex}"
    nats.make_stream(name, allow_atomic=True)
    # The long text is refused as part of a subject, and then as a message.
    dead = run(sinks.nats(nats.server, f"{name}.out.{{v}}"), sinks.nats(nats.server, f"{name}.dead"))
    assert dead == set()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("mqtt")) as server:
        yield server


def test_mqtt(broker):
    dead = run(sinks.mqtt(broker.url, f"hostile-{uuid.uuid4().hex}/{{v}}"))
    assert not dead & set(range(GOOD))


def test_kafka(kafka):
    topic = f"hostile-{uuid.uuid4().hex}"
    kafka.create(topic)
    dead = run(sinks.kafka(kafka.brokers, topic, key="v"))
    assert not dead & set(range(GOOD))
