"""The metrics of a job that is killed and resumed equal an independent count."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from integration.observe.metered_program import records
from servers.stores import free_ports
from support.waiting import SOON, eventually
from tidewheel._observe.history import History

PROGRAM = Path(__file__).with_name("metered_program.py")


@contextmanager
def running(folder: Path, port: int, faults: str = ""):
    """Run the program in a process group of its own, which is killed at the end."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), str(port)],
            env={**os.environ, "TIDEWHEEL_FAULTS": faults},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def scraped(port: int) -> Counter:
    """Return the samples by name and the label that tells them apart; empty while nobody answers."""
    try:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    except OSError:
        return Counter()
    found: Counter = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["job_name"] == "metered"
            names = [value for label, value in sorted(sample.labels.items()) if label not in ("job_name", "node")]
            found[(sample.name.removeprefix("tidewheel_"), *names)] = sample.value
    return found


def awaited(port: int, process: subprocess.Popen, name: tuple, value: float) -> Counter:
    """Scrape until a sample has a value."""
    found: list[Counter] = []

    def is_there() -> bool:
        found[:] = [scraped(port)]
        assert process.poll() is None, "the program has ended"
        return found[0].get(name) == value

    eventually(is_there, f"{name} being {value}", seconds=2 * SOON)
    return found[0]


def asked_of_prometheus(folder: Path, port: int, query: str) -> float:
    """Let a real Prometheus scrape the job, and return what it makes of a query."""
    (own,) = free_ports(1)
    config = {
        "scrape_configs": [
            {"job_name": "tidewheel", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        ]
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # YAML takes JSON.
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    server = subprocess.Popen(
        [*command, f"--web.listen-address=127.0.0.1:{own}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                url = f"http://127.0.0.1:{own}/api/v1/query?query={query}"
                answer = json.load(urllib.request.urlopen(url, timeout=10))["data"]["result"]
            except OSError:
                answer = []
            if answer:
                return float(answer[0]["value"][1])
            time.sleep(0.2)
        raise AssertionError("Prometheus has no answer")
    finally:
        server.kill()
        server.wait()


def counted() -> dict[tuple, int]:
    """Count what the program must do, in plain Python."""
    everything = records(400)
    good = [row for row in everything if row["cents"]]
    out = sum(60 // row["cents"] > 15 for row in good)
    return {
        ("step_rows_in_total", "in"): 400,
        ("step_rows_in_total", "by-user"): 400,
        ("step_rows_in_total", "total"): 400,
        ("step_rows_in_total", "large"): len(good),
        ("step_rows_out_total", "total"): len(good),
        ("step_rows_out_total", "large"): out,
        ("step_rows_out_total", "out"): out,
        ("sink_rows_published_total", "out"): out,
        ("sink_rows_published_total", "dead"): 400 - len(good),
        ("step_dead_letters_total", "total"): 400 - len(good),
        ("commits_total", "batch"): 4,
        ("batch_seconds_count",): 4,
        ("batch_phase_seconds_count", "tasks"): 4,
    }


def test_figures_of_a_killed_and_resumed_job_equal_an_independent_count(tmp_path):
    first_port, second_port = free_ports(2)
    # The third batch is held up before its commit: two are committed, and the run is killed there.
    with running(tmp_path, first_port, "commit.before=delay:600@3") as process:
        first = awaited(first_port, process, ("commits_total", "batch"), 2)
    with running(tmp_path, second_port) as process:
        second = awaited(second_port, process, ("events_total",), 400)
        ready = urllib.request.urlopen(f"http://127.0.0.1:{second_port}/ready").read()
        alive = urllib.request.urlopen(f"http://127.0.0.1:{second_port}/health").read()
        if shutil.which("prometheus"):
            assert asked_of_prometheus(tmp_path, second_port, "tidewheel_events_total") == 400
        process.send_signal(signal.SIGTERM)
        process.wait(SOON)
    together = first + second
    assert {name: together[name] for name in counted()} == counted()
    assert second["step_state_keys", "total"] == 13
    assert (ready, alive) == (b"ok\n", b"ok\n")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{second_port}/health", timeout=5)
    # The history has the same figures: of the run that was killed too, from its first commit on.
    records_kept = History(f"file://{tmp_path}/state").records("metered")
    assert sum(record.rows for record in records_kept if record.batch is not None and record.batch >= 2) == 200
    runs = History(f"file://{tmp_path}/state").runs("metered")
    assert [run.ended is None for run in runs] == [True, False]
