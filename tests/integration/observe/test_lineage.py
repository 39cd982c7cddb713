"""Lineage: OpenLineage events of a run, received by a real HTTP endpoint."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from support.waiting import eventually
from tidewheel import Job, RunOptions, sinks, sources
from tidewheel._engine.datasets import names_of, place_of
from tidewheel._observe.lineage import Dataset, Datasets, Lineage
from tidewheel.errors import StepError

SECRET = "hunter2-in-a-message"
DATASETS = Datasets([Dataset("kafka://broker:9092", "orders")], [Dataset("file", "/out", (("user", "string"),))])


@dataclass
class Order:
    user: str
    cents: int


class Endpoint:
    """Receives events, or answers with an error, or not at all."""

    def __init__(self) -> None:
        self.events: list[dict] = []
        self.headers: list[dict] = []
        self.status, self.asked, self.released = 201, threading.Event(), threading.Event()
        self.released.set()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.asked.set()
                endpoint.released.wait(60)
                text = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                if endpoint.status == 201:
                    endpoint.events.append(json.loads(text))
                    endpoint.headers.append(dict(self.headers))
                with contextlib.suppress(OSError):
                    self.send_response(endpoint.status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def endpoint(monkeypatch):
    made = Endpoint()
    monkeypatch.setenv("OPENLINEAGE_URL", made.url)
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", SECRET)
    yield made
    made.close()
    # The client copies its settings to variables of these names, which would configure the runs of later tests.
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE__")]:
        del os.environ[name]


def ran(job, spark, tmp_path, endpoint):
    with contextlib.suppress(StepError):
        job.run(until="caught-up", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    eventually(lambda: endpoint.events[-1]["eventType"] in ("COMPLETE", "FAIL"), "the last event")
    return endpoint.events


def test_a_run_reports_its_start_its_progress_and_its_end_with_its_datasets(spark, tmp_path, endpoint):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.json").write_text('{"user": "ada", "cents": 3}\n')
    job = Job("orders", state=f"file://{tmp_path}/state")
    orders = job.source("in", sources.files(f"{tmp_path}/in", "json"), type=Order)
    orders.sink("out", sinks.files(f"{tmp_path}/out", format="json"))
    orders.sink("seen", sinks.collect())
    events = ran(job, spark, tmp_path, endpoint)
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    for event in events:
        assert (event["job"]["namespace"], event["job"]["name"]) == ("shop", "orders")
        (read,), (written,) = event["inputs"], event["outputs"]
        assert (read["namespace"], read["name"]) == ("file", f"{tmp_path}/in")
        assert (written["namespace"], written["name"]) == ("file", f"{tmp_path}/out")
        for dataset in (read, written):
            fields = [(field["name"], field["type"]) for field in dataset["facets"]["schema"]["fields"]]
            assert fields == [("user", "string"), ("cents", "int64")]
    assert endpoint.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in json.dumps(events)


def test_a_run_that_fails_reports_its_error_without_secrets(spark, tmp_path, endpoint):
    def fail(n):
        raise ValueError(f"cannot log in with password='{SECRET}'")

    job = Job("fails", state=f"file://{tmp_path}/state")
    job.source("in", sources.iterable([1])).map("fail", fail).sink("out", sinks.collect())
    events = ran(job, spark, tmp_path, endpoint)
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    message = events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert "cannot log in with password=***" in message
    assert SECRET not in json.dumps(events)


def test_a_hanging_or_refusing_backend_does_not_delay_the_run(endpoint, caplog, monkeypatch):
    monkeypatch.setattr("tidewheel._observe.lineage._LAST_S", 0.1)
    endpoint.released.clear()
    lineage = Lineage("orders", "1", DATASETS)
    assert endpoint.asked.wait(60)
    for _ in range(1000):  # More than wait: the rest is left out.
        lineage.committed()
        lineage._told_at = float("-inf")
    lineage.close()
    assert endpoint.events == []
    endpoint.status = 400
    endpoint.released.set()
    eventually(lambda: "an OpenLineage event cannot be sent" in caplog.text, "the warning")
    assert SECRET not in caplog.text


def test_a_missing_client_is_one_warning(endpoint, caplog, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    lineage = Lineage("orders", "1", DATASETS)
    lineage.close()
    assert caplog.text.count("pip install 'tidewheel[lineage]'") == 1
    assert endpoint.events == []


def test_nothing_is_imported_or_sent_unless_the_environment_says_so():
    code = "import sys, tidewheel, tidewheel._spark.driver; sys.exit('openlineage' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


CATALOG = {"type": "rest", "uri": "http://user:pw@catalog:8181/", "token": SECRET}
NAMES = {
    "chain": (
        lambda: sources.chain(sources.files("/data/in", "json"), sources.kafka("one:9092,two:9092", "orders")),
        [("file", "/data/in"), ("kafka://one:9092", "orders")],
    ),
    "kafka": (lambda: sources.kafka("one:9092", ["a", "b"]), [("kafka://one:9092", "a"), ("kafka://one:9092", "b")]),
    "kafka-sink": (lambda: sinks.kafka("one:9092", "out"), [("kafka://one:9092", "out")]),
    "nats": (lambda: sources.nats("nats://u:pw@host:4222", "ORDERS"), [("nats://host:4222", "ORDERS")]),
    "nats-sink": (lambda: sinks.nats("nats://u:pw@host:4222", "out.{user}"), [("nats://host:4222", "out.{user}")]),
    "mqtt-sink": (lambda: sinks.mqtt("mqtt://u:pw@host:1883", "out"), [("mqtt://host:1883", "out")]),
    "files-sink": (lambda: sinks.files("/data/out"), [("file", "/data/out")]),
    "postgres": (
        lambda: sinks.postgres("postgresql://ada@db:5432/shop", "totals"),
        [("postgres://db:5432", "shop.public.totals")],
    ),
    "delta": (lambda: sinks.delta("/lake/a"), [("file", "/lake/a")]),
    "delta-merge": (lambda: sinks.delta("/lake/a", mode="merge", key="id"), [("file", "/lake/a")]),
    "delta-source": (lambda: sources.delta("/lake/a"), [("file", "/lake/a")]),
    "iceberg": (lambda: sinks.iceberg("shop.a", catalog=CATALOG), [("http://catalog:8181", "shop.a")]),
    "iceberg-source": (lambda: sources.iceberg("shop.a", catalog=CATALOG), [("http://catalog:8181", "shop.a")]),
    "function": (lambda: sinks.for_each(print), []),
    "collect": (sinks.collect, []),
    "iterable": (lambda: sources.iterable([1]), []),
}


@pytest.mark.parametrize("name", NAMES)
def test_datasets_are_named_by_the_rules_of_openlineage_without_logins(name):
    made, expected = NAMES[name]
    assert names_of(made()) == expected


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3://lake/a/b?endpoint=http://h&region=eu", ("s3://lake", "a/b")),
        ("s3a://lake/a", ("s3://lake", "a")),
        ("gs://lake/a/", ("gs://lake", "a")),
        ("file:///data/a", ("file", "/data/a")),
    ],
)
def test_places_are_named_by_bucket_and_key(url, name):
    assert place_of(url) == name
