"""The batches of a job that reads files, Kafka, NATS or an inbox run again, also with a changed program; then it is switched."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Producer

from servers.nats_server import nats  # noqa: F401
from tidewheel import Job, RunOptions, StoredJob, sources
from tidewheel.errors import TidewheelError
from tidewheel.fleet import Router, open_inbox
from tidewheel.sinks import collect

Payment = dict[str, object]
Send = Callable[[Sequence[Payment]], object]
"""Sends records to the source."""
Forget = Callable[[], object]
"""Removes the first records, as retention does in its own time."""
PAYMENTS: list[Payment] = [{"user": f"user-{number % 5}", "cents": number} for number in range(60)]
MORE: list[Payment] = [{"user": f"user-{number % 7}", "cents": number} for number in range(60, 90)]


def of_files(request, tmp_path) -> tuple[sources.Source, Send, Forget]:
    folder = tmp_path / "in"
    folder.mkdir()

    def send(payments: Sequence[Payment]) -> None:
        for first in range(0, len(payments), 20):
            lines = [json.dumps({"value": json.dumps(payment)}) for payment in payments[first : first + 20]]
            (folder / f"{payments[first]['cents']:02}.json").write_text("\n".join(lines))

    source = sources.files(str(folder), "json", schema="value string", max_files_per_trigger=1)
    return source, send, lambda: (folder / "00.json").unlink()


def of_kafka(request, tmp_path) -> tuple[sources.Source, Send, Forget]:
    server, topic = request.getfixturevalue("kafka"), f"replay-{secrets.token_hex(4)}"
    server.create(topic, 2)
    producer = Producer({"bootstrap.servers": server.brokers})

    def send(payments: Sequence[Payment]) -> None:
        for payment in payments:
            producer.produce(topic, json.dumps(payment), partition=payment["cents"] % 2)
        assert producer.flush(30) == 0

    # A replay must not skip records, also where the job would.
    source = sources.kafka(server.brokers, topic, max_records=20, lost="earliest")
    return source, send, lambda: server.forget(topic, 5)


def of_nats(request, tmp_path) -> tuple[sources.Source, Send, Forget]:
    server, stream = request.getfixturevalue("nats"), f"replay{secrets.token_hex(4)}"
    server.make_stream(stream)

    def send(payments: Sequence[Payment]) -> None:
        server.send(f"{stream}.in", [json.dumps(payment).encode() for payment in payments])

    return sources.nats(server.server, stream, max_records=20, lost="earliest"), send, lambda: server.purge(stream, 5)


def of_inbox(request, tmp_path) -> tuple[sources.Source, Send, Forget]:
    url = f"file://{tmp_path}/inbox"

    def send(payments: Sequence[Payment]) -> None:
        with open_inbox(url, 4) as opened, Router(opened) as router:
            for payment in payments:
                router.route(payment["user"], payment)
                router.flush()  # A batch has whole blocks.

    def forget() -> None:
        min((tmp_path / "inbox").rglob("*.log")).unlink()

    return sources.inbox(url, max_events=20), send, forget


SOURCES = {
    "files": (
        of_files,
        "value",
        ("file", "line"),
        "the records of commit 2 cannot be read again: the file .*/00.json is gone",
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
def test_batches_run_again_and_the_program_is_switched(kind, request, spark, tmp_path):
    made, column, places, lost = SOURCES[kind]
    source, send, forget = made(request, tmp_path)
    send(PAYMENTS)

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

    options = RunOptions(spark=spark, local=f"{tmp_path}/local")
    job().run(until="caught-up", parallelism=2, options=options)
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
    send(MORE)
    job().switch(lambda switching: switching.same, last=2, until="caught-up", parallelism=2, options=options)
    totals = Counter()
    for payment in (*PAYMENTS, *MORE):
        totals[payment["user"]] += payment["cents"]
    assert dict(stored.scan("total")) == totals
    forget()
    with pytest.raises(TidewheelError, match=lost):
        stored.replay(job(), batches[0])
