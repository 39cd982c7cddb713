"""The batches of a job that reads files, Kafka, NATS or an inbox run again, and a changed program runs over them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from servers.nats_server import nats  # noqa: F401
from tidewheel import Job, RunOptions, StoredJob, sources
from tidewheel.errors import TidewheelError
from tidewheel.fleet import Router, open_inbox
from tidewheel.sinks import collect

Forget = Callable[[], object]
"""Removes the first records, as retention does in its own time."""
PAYMENTS = [{"user": f"user-{number % 5}", "cents": number} for number in range(60)]


def of_files(request, tmp_path) -> tuple[sources.Source, Forget]:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        lines = [json.dumps({"value": json.dumps(payment)}) for payment in PAYMENTS[number * 20 : number * 20 + 20]]
        (folder / f"{number}.json").write_text("\n".join(lines))
    return sources.files(str(folder), "json", schema="value string", max_files_per_trigger=1), lambda: (
        folder / "0.json"
    ).unlink()


def of_kafka(request, tmp_path) -> tuple[sources.Source, Forget]:
    server, topic = request.getfixturevalue("kafka"), f"replay-{secrets.token_hex(4)}"
    server.create(topic, 2)
    producer = Producer({"bootstrap.servers": server.brokers})
    for payment in PAYMENTS:
        producer.produce(topic, json.dumps(payment), partition=payment["cents"] % 2)
    assert producer.flush(30) == 0
    # A replay must not skip records, also where the job would.
    source = sources.kafka(server.brokers, topic, max_records=20, lost="earliest")
    return source, lambda: server.forget(topic, 5)


def of_nats(request, tmp_path) -> tuple[sources.Source, Forget]:
    server, stream = request.getfixturevalue("nats"), f"replay{secrets.token_hex(4)}"
    server.make_stream(stream)
    server.send(f"{stream}.in", [json.dumps(payment).encode() for payment in PAYMENTS])
    return sources.nats(server.server, stream, max_records=20, lost="earliest"), lambda: server.purge(stream, 5)


def of_inbox(request, tmp_path) -> tuple[sources.Source, Forget]:
    url = f"file://{tmp_path}/inbox"
    with open_inbox(url, 4) as opened, Router(opened) as router:
        for payment in PAYMENTS:
            router.route(payment["user"], payment)
            router.flush()  # A batch has whole blocks.

    def forget() -> None:
        min((tmp_path / "inbox").rglob("*.log")).unlink()

    return sources.inbox(url, max_events=20), forget


SOURCES = {
    "files": (
        of_files,
        "value",
        ("file", "line"),
        "the records of commit 2 cannot be read again: the file .*/0.json is gone",
    ),
    "kafka": (
        of_kafka,
        "value",
        ("partition", "offset"),
        "source 'in': the records of commit 2 cannot be read again: part",
    ),
    "nats": (
        of_nats,
        "data",
        ("partition", "sequence"),
        "source 'in': the records of commit 2 cannot be read again: part",
    ),
    "inbox": (of_inbox, "value", ("shard", "position"), "that part was trimmed"),
}
"""How to make each source, the column of its payload, what the place of a record has, and the error if records are lost."""


@pytest.mark.parametrize("kind", SOURCES)
def test_batches_run_again_and_a_changed_program_runs_over_them(kind, request, spark, tmp_path):
    made, column, places, lost = SOURCES[kind]
    source, forget = made(request, tmp_path)

    def job(times: int = 1) -> Job:
        found = Job("payments", state=f"file://{tmp_path}/state", n_shards=4, keep=100)
        payments = found.source("in", source).map(lambda row: json.loads(row[column]))
        totals = payments.key_by("by-user", lambda payment: payment["user"]).stateful_map(
            "total",
            lambda user, payment, total: (total + payment["cents"], total + payment["cents"] * times),
            default=0,
        )
        totals.sink("out", collect())
        return found

    job().run(until="caught-up", parallelism=2, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    stored = StoredJob("payments", state=f"file://{tmp_path}/state")
    batches = [manifest.sequence for manifest in stored.list() if manifest.kind == "batch"]
    assert len(batches) > 1
    results = [stored.replay(job(), sequence) for sequence in batches]
    assert [result for result in results if not result.same] == []
    assert sum(len(result.rows["out"]) for result in results) == len(PAYMENTS)
    traced = [message for sequence in batches for message in stored.messages(job(), sequence, "total", "user-2")]
    mine = [payment["cents"] for payment in PAYMENTS if payment["user"] == "user-2"]
    assert sorted(message.value["cents"] for message in traced) == mine
    assert {(message.source, *message.place) for message in traced} == {("in", *places)}
    if kind == "kafka":
        assert all(int(message.place["partition"][-1]) == message.value["cents"] % 2 for message in traced)
        assert all(message.place["offset"] == message.value["cents"] // 2 for message in traced)
    found = stored.shadow(job(times=2), last=len(batches), old=job())
    assert found.records == len(PAYMENTS)
    assert found.state[0].changed == 5
    forget()
    with pytest.raises(TidewheelError, match=lost):
        stored.replay(job(), batches[0])
