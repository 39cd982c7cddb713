"""Each program under examples/ runs as its docstring says and gives the right output; the index lists all of them."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import runpy
import sqlite3
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import psycopg
import pytest
from pyarrow import dataset

from servers.mqtt_server import broker  # noqa: F401
from servers.nats_server import nats  # noqa: F401
from tidewheel import Job, RunOptions
from tidewheel.connectors import MqttBridge
from tidewheel.testing import run_in_memory

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


@pytest.fixture(autouse=True)
def new_folder(tmp_path, monkeypatch):
    """Change to a new folder, below which the programs write; an example can import another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)


def program(name):
    return runpy.run_path(str(EXAMPLES / name))


def run(name, spark, until="caught-up"):
    program(name)["job"].run(until=until, options=RunOptions(spark=spark, local="local"))


def rows(folder):
    lines = [line for path in sorted(Path("out", folder).glob("*.json")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def last_rows(folder, key):
    return {row[key]: row for row in rows(folder)}


def test_totals(spark):
    run("totals.py", spark)
    assert [row["value"] for row in rows("totals") if row["user"] == "ada"] == [250, 3350, 4250]


def test_query_state(spark, monkeypatch, capsys):
    run_job = Job.run
    settings = RunOptions(spark=spark, local="local")
    monkeypatch.setattr(Job, "run", lambda job, **arguments: run_job(job, options=settings, **arguments))
    try:
        program("query_state.py")["main"]()
    finally:
        sys.modules.pop("totals", None)
    assert "all: {'ada': 4250, 'bob': 1900, 'eve': 5400}" in capsys.readouterr().out


def test_hourly_revenue(spark):
    run("hourly_revenue.py", spark, until="end")
    found = {(row["country"], row["start"][:13]): (row["orders"], row["cents"]) for row in rows("hourly-revenue")}
    assert found[("NL", "2026-03-02T09")] == (2, 3350)
    assert found[("DE", "2026-03-02T10")] == (1, 250)
    assert rows("late") == []


def test_alerts():
    job = program("alerts.py")["job"]
    orders = [{"id": 1, "user": "ada", "cents": 3100}, {"id": 2, "user": "bob", "cents": 900}]
    assert [row["id"] for row in run_in_memory(job, {"orders": orders}).outputs["out"]] == [1]


def test_unpaid(spark):
    run("unpaid.py", spark, until="end")
    assert sorted(row["order"] for row in rows("unpaid")) == [2, 5, 8]


def test_webhooks(spark):
    run("webhooks.py", spark, until="end")
    assert {user: row["cents"] for user, row in last_rows("webhooks", "user").items()} == {"ada": 350, "bob": 900}


def test_failed_logins(spark):
    run("failed_logins.py", spark, until="end")
    assert [(row["key"], row["value"]) for row in rows("failed-logins")] == [("eve", 3)]


def test_broken_records(spark):
    run("broken_records.py", spark)
    assert [row["value"] for row in rows("prices")] == [125.0, 100.0]
    assert len(rows("unreadable")) == 2
    assert ["ZeroDivisionError" in row["error"] for row in rows("dead")] == [True]


def test_enrich(spark):
    run("enrich.py", spark)
    assert {"order": 1, "name": "Green tea", "net_cents": 229} in rows("invoices")
    assert {row["order"] for row in rows("invoices")} == {1, 2, 4, 5, 6, 8, 9}


def test_columns(spark):
    run("columns.py", spark)
    table = dataset.dataset("out/trips", partitioning="hive", exclude_invalid_files=True).to_table().to_pylist()
    speeds = {row["city"]: round(row["kilometres_per_hour"], 1) for row in table}
    assert speeds == {"Utrecht": 16.8, "Bremen": 18.0, "Nantes": 18.0}


def test_routes(spark):
    run("routes.py", spark)
    found = {folder: sorted(row["id"] for row in rows(folder)) for folder in ("dutch", "german", "other")}
    assert found == {"dutch": [1, 3, 6], "german": [2, 5, 8], "other": [4, 7, 9]}


def test_sqlite_table(spark):
    run("sqlite_table.py", spark)
    with sqlite3.connect("out/totals.db") as connection:
        totals = set(connection.execute("SELECT * FROM totals"))
    connection.close()
    assert totals == {("ada", 3, 4250), ("bob", 3, 1900), ("eve", 3, 5400)}


def test_spark_dataframe(spark):
    run("spark_dataframe.py", spark)
    found = {user: (row["name"], row["cents"]) for user, row in last_rows("best", "user").items()}
    assert found == {"ada": ("Mug with a lid", 900), "bob": ("Mug with a lid", 900), "eve": ("Mug with a lid", 1800)}


def texts(records):
    return sorted(record["value"] for record in records)


def test_windows():
    found = run_in_memory(program("windows.py")["job"]).outputs
    assert texts(found["out"]) == [
        "10:00 to 10:10: tea 5, mug 2, pot 2",
        "10:10 to 10:20: mug 4, tea 1",
        "10:30 to 10:40: tea 5",
    ]
    assert texts(found["late"]) == ["too late: pot 9"]


def test_sessions():
    found = run_in_memory(program("sessions.py")["job"]).outputs
    assert texts(found["out"]) == [
        "09:00, 25 minutes: home > tea > cart",
        "09:05, 0 minutes: home",
        "10:20, 25 minutes: mugs > cart",
        "10:30, 0 minutes: home",
    ]
    assert found.get("late", []) == []


def test_joins():
    # The rate is the one at the time when order and payment are both known, or when no payment can come any more.
    assert texts(run_in_memory(program("joins.py")["job"]).outputs["out"]) == [
        "order 1: 30",
        "order 2: 100, not paid",
        "order 3: 120",
        "order 4: 160",
    ]


def test_kafka_totals(spark, kafka, postgres, monkeypatch):
    monkeypatch.setenv("KAFKA", kafka.brokers)
    monkeypatch.setenv("POSTGRES", postgres.dsn)
    kafka.create("payments", partitions=2)
    example = program("kafka_totals.py")
    paid = example["fill"]()
    example["job"].run(until="caught-up", options=RunOptions(spark=spark, local="local"))
    with psycopg.connect(postgres.dsn) as connection:
        totals = connection.execute('SELECT "user", cents FROM totals').fetchall()
        broken = connection.execute("SELECT count(*) FROM broken_payments").fetchone()
    assert {user: int(cents) for user, cents in totals} == paid
    assert broken == (5,)


def test_nats_sessions(spark, nats, monkeypatch):  # noqa: F811
    monkeypatch.setenv("NATS", nats.server)
    example = program("nats_sessions.py")
    clicks = example["day"]()
    asyncio.run(example["send"](clicks))
    example["job"].run(until="end", options=RunOptions(spark=spark, local="local"))
    written = dataset.dataset("out/visits", exclude_invalid_files=True).to_table().to_pylist()
    assert sorted((row["visitor"], row["begin"], row["pages"]) for row in written) == visits(clicks, example["GAP"])


def visits(clicks, gap):
    """Return visitor, begin and number of pages of all visits, counted without Tidewheel."""
    found, latest = [], {}
    for click in sorted(clicks, key=lambda click: (click["visitor"], click["at"])):
        visitor, at = click["visitor"], datetime.fromisoformat(click["at"])
        if visitor in latest and at - latest[visitor] < gap:
            found[-1] = (*found[-1][:2], found[-1][2] + 1)
        else:
            found.append((visitor, at, 1))
        latest[visitor] = at
    return sorted(found)


def test_sensors_delta(spark, broker, monkeypatch):  # noqa: F811
    from deltalake import DeltaTable

    monkeypatch.setenv("MQTT", broker.url)
    example = program("sensors_delta.py")
    # The broker keeps messages only for sessions that it knows, so open the session of the job before they are sent.
    MqttBridge(example["source"].bridging).close()
    example["send"]()
    example["job"].run(until="end", options=RunOptions(spark=spark, local="local"))
    table = DeltaTable("out/minutes").to_pyarrow_table().to_pylist()
    measured = Counter((json.loads(text)["sensor"], json.loads(text)["at"][:16]) for _, text in example["messages"]())
    assert {(row["sensor"], row["start"].isoformat()[:16]): row["measured"] for row in table} == measured


def test_every_program_is_run_by_a_test():
    # `make demo` and tests/chaos/test_fleet.py run the two demonstrations with their programs.
    others = {"clicks", "demo", "fleet_demo", "fleet_program", "test_totals"}
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in PROGRAMS} - tested == others


def test_the_example_of_a_test_passes():
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", "test_totals.py"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES)
    assert (ended.returncode, "3 passed" in ended.stdout) == (0, True), ended.stdout + ended.stderr


def sentence(path):
    return (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_docstring_has_a_sentence_and_a_command(path):
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    commands = [line for line in docstring.splitlines() if re.match(r" *(make|python|pytest|tidewheel) ", line)]
    assert re.fullmatch(r"[A-Z].{20,115}\.", sentence(path))
    assert any(path.name in line or "make " in line for line in commands)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_no_program_imports_from_the_tests(path):
    test_modules = {each.stem for each in (EXAMPLES.parent / "tests").iterdir()}
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name for node in imports for name in imported(node)} - {each.stem for each in PROGRAMS}
    assert names & {"tests", *test_modules} == set()
    assert "sys.path" not in path.read_text()


def imported(node):
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
    return {name.partition(".")[0] for name in names}


def test_the_index_lists_every_program_with_its_sentence():
    listed = re.findall(r"^\| \[([a-z_]+\.py)\]\(\1\) \| (.+) \|$", (EXAMPLES / "README.md").read_text(), re.M)
    assert dict(listed) == {path.name: sentence(path) for path in PROGRAMS}
