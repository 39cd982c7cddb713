"""One trace per batch: its phases and tasks, an error without secrets, and the id in logs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from typer.testing import CliRunner

from support.internals import app
from support.waiting import SOON
from tidewheel import Job, sinks, sources
from tidewheel._core import logs
from tidewheel._engine.run_reporter import RunReporter
from tidewheel._observe.tracing import Tracing
from tidewheel.testing import MemoryRun


@pytest.fixture
def exported():
    return InMemorySpanExporter()


@pytest.fixture
def provider(exported):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return provider


def job() -> Job:
    job = Job("traced", state="memory:traced")
    keyed = job.source("in", sources.iterable([1]), type=int).key_by("by", lambda n: n)
    keyed.reduce("largest", max).sink("out", sinks.collect())
    return job


def test_a_batch_is_one_trace_with_its_steps_and_tasks(exported, provider):
    with MemoryRun(job(), parallelism=2) as run:
        telling = RunReporter(run.run)
        telling._tracing._tracer = provider.get_tracer("test")
        with telling.batch(0) as phases:
            inside = logs.fields()["trace_id"]
            commit = run.run.commit

            def committed(*arguments, **options):
                phases.done("tasks")
                phases.reports = arguments[1]
                return commit(*arguments, **options, phases=phases)

            run.run.commit = committed
            run.batch({"in": [{"value": 1}, {"value": 2}]})
        telling.close()
    spans = exported.get_finished_spans()
    by_id = {span.context.span_id: span for span in spans}
    (root,) = [span for span in spans if span.parent is None]
    assert {f"{span.context.trace_id:032x}" for span in spans} == {inside}
    assert (root.name, root.attributes["tidewheel.job"], root.attributes["tidewheel.batch"]) == ("batch", "traced", 0)
    assert root.attributes["tidewheel.sequence"] == 2
    inner = [span for span in spans if span.parent is not None]
    assert {(span.name, by_id[span.parent.span_id].name) for span in inner} == {
        ("tasks", "batch"),
        ("commit", "batch"),
        ("publish", "batch"),
        ("task", "tasks"),
    }
    tasks = [span.attributes for span in inner if span.name == "task"]
    assert sorted((each["tidewheel.level"], each["tidewheel.partition"]) for each in tasks) == [(0, 0), (1, 0), (1, 1)]
    assert all(span.end_time >= span.start_time for span in spans)
    assert logs.fields()["trace_id"] is None


def test_an_error_is_in_its_trace_without_secrets(exported, provider):
    tracing = Tracing("orders", "r1", "one")
    tracing._tracer = provider.get_tracer("test")
    with pytest.raises(ValueError, match="s3cret"), tracing.batch(3):
        raise ValueError("cannot reach nats://ada:s3cret@host/a")
    (span,) = exported.get_finished_spans()
    assert not span.status.is_ok
    assert span.status.description == "cannot reach nats://host/a"
    assert span.attributes["tidewheel.node"] == "one"
    assert "s3cret" not in str(span.events[0].attributes)
    assert tracing.trace_id() is None


def test_without_a_provider_nothing_is_traced():
    tracing = Tracing("orders", "r1")
    with tracing.batch(0) as batch:
        assert tracing.trace_id() is None
    assert batch.spans == ()


def test_without_opentelemetry_batches_run_and_the_option_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with Tracing("orders", "r1").batch(0):
        pass
    result = CliRunner().invoke(app, ["run", "nothing.py", "--traces"])
    assert result.exit_code == 1
    assert "pip install 'tidewheel[otel]'" in result.stderr


EXPORTING = """
from opentelemetry import trace
from tidewheel._observe.tracing import Tracing, export_traces
export_traces()
with Tracing("orders", "run-1", "").batch(7):
    pass
trace.get_tracer_provider().shutdown()
"""


def test_traces_reach_a_collector(tmp_path):
    asked: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    place = f"http://127.0.0.1:{server.server_address[1]}"
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": place, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
    try:
        subprocess.run([sys.executable, "-c", EXPORTING], env={**os.environ, **settings}, check=True, timeout=SOON)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert [path for path, _ in asked] == ["/v1/traces"]
    assert b"batch" in asked[0][1]
    assert b"orders" in asked[0][1]
