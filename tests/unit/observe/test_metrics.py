"""Metrics: Prometheus reads the figures of the commits; health and readiness; the list in the docs."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text

from tidewheel._core.http_endpoint import Request
from tidewheel._observe.endpoint import MetricsEndpoint, answer, place
from tidewheel._observe.metric_list import METRICS, PREFIX
from tidewheel._observe.metrics import Metrics
from tidewheel._observe.records import Behind, Called, CommitRecord, Published, Stored
from tidewheel.errors import ConfigError, FencedError

ROOT = Path(__file__).parents[3]


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def metrics(time):
    return Metrics("orders", "one", ready_within=60, clock=time, ticking=time)


def samples(metrics: Metrics, parse=prometheus_text, accept: str = "") -> dict[tuple, float]:
    _, _, body = answer(metrics, Request("GET", "/metrics", headers={"accept": accept}))
    found = {}
    for family in parse(body.decode()):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("job_name", "node")}
            found[sample.name.removeprefix(PREFIX), *sorted(labels.values())] = sample.value
    return found


RECORD = CommitRecord(
    7,
    5_000_000_000,
    tasks=1,
    parallelism=4,
    seconds=0.3,
    phases={"tasks": 0.2, "commit": 0.1},
    rows_in={"in": 10, "total": 10},
    rows_out={"in": 10, "out": 8},
    busy={"total": 0.25},
    late={"total": 2},
    dropped={"split": 1},
    dead={"decode": 3},
    failed={"positive": 6},
    changed={"total": 4},
    stored={"total": Stored(9, 900)},
    epoch=900 * 10**9,
    deltas=3,
    delta_bytes=300,
    snapshots=1,
    snapshot_bytes=50,
    caught_up_bytes=70,
    published={"out": Published(8, 0.02)},
    cells={"threshold": 5},
    events=100,
    held=16,
    skew=1.5,
    called={"price": Called(20, 3, 5, 1500)},
    tables={"prices": (3, 1200)},
)


def test_figures_of_commits_are_summed_and_the_newest_shown(metrics):
    metrics.committed(RECORD)
    metrics.committed(RECORD)
    metrics.behind = lambda: {"in": {"0": Behind(12, 3.5)}}
    metrics.inbox = "in"
    found = samples(metrics)
    assert found["step_rows_in_total", "in"] == 20
    assert found["step_rows_out_total", "out"] == 16
    assert found["step_busy_seconds_total", "total"] == 0.5
    assert found["step_late_rows_total", "total"] == 4
    assert found["step_dropped_rows_total", "split"] == 2
    assert found["step_failed_expectations_total", "positive"] == 12
    assert found["step_dead_letters_total", "decode"] == 6
    assert found["step_calls_total", "price"] == 40
    assert found["step_call_failures_total", "price"] == 6
    assert found["step_call_seconds_total", "price"] == 3
    assert found["step_keys_changed_total", "total"] == 8
    assert found["step_state_keys", "total"] == 9
    assert found["step_state_bytes", "total"] == 900
    assert found["commits_total", "batch"] == 2
    assert found["events_total",] == 100
    assert found["batch_seconds_count",] == 2
    assert found["batch_seconds_sum",] == pytest.approx(0.6)
    assert found["batch_seconds_bucket", "0.25"] == 0
    assert found["batch_seconds_bucket", "0.5"] == 2
    assert found["batch_phase_seconds_sum", "tasks"] == pytest.approx(0.4)
    assert found["batch_tasks",] == 1
    assert found["parallelism",] == 4
    assert found["last_commit_timestamp_seconds",] == 5
    assert found["last_commit_sequence",] == 7
    assert found["source_rows_behind", "0", "in"] == 12
    assert found["source_seconds_behind", "0", "in"] == 3.5
    assert found["inbox_backlog_rows",] == 12
    assert found["data_clock_timestamp_seconds",] == 900
    assert found["data_clock_behind_seconds",] == 100
    assert found["state_skew_ratio",] == 1.5
    assert found["deltas_written_total",] == 6
    assert found["delta_bytes_total",] == 600
    assert found["snapshots_written_total",] == 2
    assert found["snapshot_bytes_total",] == 100
    assert found["caught_up_bytes_total",] == 140
    assert found["sink_rows_published_total", "out"] == 16
    assert found["sink_publish_seconds_sum", "out"] == pytest.approx(0.04)
    assert found["cell_version", "threshold"] == 5
    assert found["shards_held",] == 16


def test_both_forms_of_the_text_say_the_same(metrics, tmp_path):
    metrics.local = str(tmp_path)
    metrics.claimed("r1", "0.2.0")
    metrics.committed(RECORD)
    newer = "application/openmetrics-text;version=1.0.0"
    assert samples(metrics, open_metrics, newer).keys() == samples(metrics).keys()


def test_every_metric_can_be_seen_and_none_else(metrics, tmp_path):
    metrics.local = str(tmp_path)
    metrics.behind = lambda: {"in": {"0": Behind(1)}, "files": {"folder": Behind(0, 1.0, 2)}}
    metrics.inbox = "in"
    metrics.claimed("r1", "0.2.0")
    metrics.committed(RECORD)
    metrics.failed(ValueError("no"), restarted=True, fenced=False)
    metrics.refresh_failed("prices")
    assert {family.name for family in metrics.collect()} == {metric.name for metric in METRICS}


def test_failures_restarts_and_being_fenced_are_counted_apart(metrics):
    metrics.failed(ValueError("no"), restarted=True, fenced=False)
    metrics.failed(FencedError("taken"), restarted=False, fenced=True)
    found = samples(metrics)
    assert (found["restarts_total",], found["fenced_total",]) == (1, 1)
    assert found["failures_total", "ValueError"] == found["failures_total", "FencedError"] == 1


def test_labels_may_have_any_text(metrics):
    metrics.behind = lambda: {'a"b\\c\nd<script>': {"0": Behind(1)}}
    assert samples(metrics)["source_rows_behind", "0", 'a"b\\c\nd<script>'] == 1


def test_a_source_of_files_reports_files_and_no_rows(metrics):
    metrics.behind = lambda: {"in": {"folder": Behind(0, 2.5, 3)}}
    found = samples(metrics)
    assert found["source_files_behind", "folder", "in"] == 3
    assert found["source_seconds_behind", "folder", "in"] == 2.5
    assert ("source_rows_behind", "folder", "in") not in found


def test_a_removed_partition_is_no_longer_reported(metrics):
    metrics.behind = lambda: {"in": {"0": Behind(1)}}
    assert ("source_rows_behind", "0", "in") in samples(metrics)
    metrics.behind = dict
    assert ("source_rows_behind", "0", "in") not in samples(metrics)


def test_it_is_alive_while_it_starts_and_while_its_loop_turns(metrics, time):
    time.now += 1000
    assert metrics.alive() is None, "a start may take its time"
    metrics.turned()
    time.now += 59
    assert metrics.alive() is None
    time.now += 10
    assert metrics.alive() == "the run's loop has not turned for 69 s"
    metrics.failed(ValueError("no"), restarted=True, fenced=False)
    assert metrics.alive() is None, "it waits before it starts again"


def test_it_is_ready_when_claimed_and_at_work_or_waiting_for_data(metrics, time):
    assert metrics.ready() == "no run has claimed the job"
    metrics.claimed("r1", "0.2.0")
    assert metrics.ready() is None
    time.now += 61
    metrics.turned()
    assert metrics.ready() == "the last commit was 61 s ago, limit 60 s"
    metrics.committed(RECORD)
    assert metrics.ready() is None
    time.now += 61
    metrics.turned(waiting=True)
    assert metrics.ready() is None
    metrics.ended()
    assert metrics.ready() == "no run has claimed the job"


def test_the_endpoint_answers_on_loopback(metrics):
    with MetricsEndpoint(metrics, 0) as endpoint:
        assert endpoint.url.startswith("http://127.0.0.1:")
        assert b"tidewheel_run_claimed" in urllib.request.urlopen(f"{endpoint.url}/metrics").read()
        assert urllib.request.urlopen(f"{endpoint.url}/health").read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError) as ready:
            urllib.request.urlopen(f"{endpoint.url}/ready")
        with pytest.raises(urllib.error.HTTPError) as other:
            urllib.request.urlopen(f"{endpoint.url}/state")
        with pytest.raises(ConfigError, match=rf"cannot serve metrics on port {endpoint.port} of 127.0.0.1"):
            MetricsEndpoint(metrics, endpoint.port)
    assert (ready.value.code, ready.value.read()) == (503, b"no run has claimed the job\n")
    assert other.value.code == 404
    ready.value.close(), other.value.close()


@pytest.mark.parametrize("wrong", ["", "host", "host:", "70000", ":9090", "a b:1", -1])
def test_a_place_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"metrics are served at a port or at host:port"):
        place(wrong)


def test_the_docs_list_the_metrics_that_there_are():
    page = (ROOT / "docs/operations.md").read_text()
    rows = re.findall(r"^\| `(tidewheel_\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", page, re.M)
    suffix = {"counter": "_total", "info": "_info"}
    assert [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), text.strip()) for name, kind, labels, text in rows] == [
        (metric.name + suffix.get(metric.kind, ""), metric.kind, metric.labels, metric.help) for metric in METRICS
    ]


def test_a_port_chosen_by_the_machine_is_shown(caplog):
    with MetricsEndpoint(Metrics("told"), 0) as endpoint:
        assert f"metrics: at http://127.0.0.1:{endpoint.port}" in caplog.messages
