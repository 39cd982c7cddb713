"""The files of `tidewheel monitoring` name existing metrics and labels, and Prometheus can read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tidewheel._observe.metric_list import METRICS

DEPLOY = Path(__file__).parents[3] / "src/tidewheel/_observe/monitoring"
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "info": ("_info",), "histogram": ("_bucket", "_sum", "_count")}
SAMPLES = {metric.name + suffix: metric for metric in METRICS for suffix in SUFFIXES[metric.kind]}
COMMON = {"job_name", "node", "instance", "le"}


def alerts() -> list[dict]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    return group["rules"]


def panels() -> list[dict]:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in alerts()] + [
    (panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]
]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_metrics_and_labels_of_an_expression_exist(where, expression):
    names = set(re.findall(r"\btidewheel_\w+", expression))
    assert names <= SAMPLES.keys()
    known = COMMON.union(*(SAMPLES[name].labels for name in names))
    grouped = {
        label.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(",")
    }
    selected = set(re.findall(r"[{,]\s*(\w+)=", expression)) - {"job"}
    assert grouped | selected <= known


def test_texts_name_labels_that_their_expressions_have():
    for rule in alerts():
        texts = " ".join(rule["annotations"].values())
        labels = COMMON.union(*(SAMPLES[name].labels for name in re.findall(r"\btidewheel_\w+", rule["expr"])))
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels
        assert {"summary", "description"} == rule["annotations"].keys()
        assert rule["labels"]["severity"] in ("page", "ticket")
    for panel in panels():
        for target in panel["targets"]:
            labels = COMMON.union(*(SAMPLES[name].labels for name in re.findall(r"\btidewheel_\w+", target["expr"])))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels


def test_metrics_of_the_required_alerts_exist():
    names = {rule["alert"].removeprefix("Tidewheel") for rule in alerts()}
    assert {"NoCommit", "LagGrows", "DeadLetters", "Skew", "Disk"} <= names


def test_panels_do_not_lie_over_one_another():
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in board["panels"]):
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_metric_but_a_few_is_on_the_dashboard_or_in_an_alert():
    shown = {SAMPLES[name].name for _, text in EXPRESSIONS for name in re.findall(r"\btidewheel_\w+", text)}
    left_out = {
        "last_commit_sequence",
        "data_clock_timestamp_seconds",
        "deltas_written",
        "snapshots_written",
        "run_claimed",
        "shard_visits",
        "stale_shard_visits",
        "run",
        "table_version",
        "table_rows",
    }
    assert {metric.name.removeprefix("tidewheel_") for metric in METRICS if metric.name not in shown} == left_out


def test_prometheus_reads_all_expressions(tmp_path):
    """By promtool where it is installed (Debian: `apt install prometheus`); the tests above need nothing."""
    if shutil.which("promtool") is None:
        return
    filled = [
        re.sub(r"\$__rate_interval", "5m", text).replace("$job_name", ".*").replace("$node", ".*")
        for _, text in EXPRESSIONS
    ]
    rules = [{"record": f"test:{number}".replace(":", "_"), "expr": text} for number, text in enumerate(filled)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    for file in (tmp_path / "rules.yml", DEPLOY / "prometheus-alerts.yml"):
        said = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True)
        assert said.returncode == 0, said.stdout + said.stderr
