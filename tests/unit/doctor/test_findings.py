"""What the doctor concludes from a version, from a host's answer, and from an error of Spark."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from support.waiting import eventually
from tidewheel._doctor.examination import examine, python_version, spark_version
from tidewheel._doctor.hosts import findings
from tidewheel._spark.hosts import explained, warned_of_waiting


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_an_unsupported_python_is_refused(version):
    refused = python_version(version)
    assert refused.level == "missing"
    assert f"Tidewheel runs on Python 3.11 to 3.14; this one is 3.{version[1]}. Make an environment" in refused.text


def test_supported_pythons_are_fine():
    assert {python_version((3, minor)).level for minor in (11, 12, 13, 14)} == {"fine"}


def test_an_unsupported_spark_is_refused():
    refused = spark_version("3.5.7")
    assert refused.level == "missing"
    assert "Tidewheel runs on Spark 4.0 to 4.3; this one is pyspark 3.5.7. Install another" in refused.text


ANSWER = {
    "version": list(sys.version_info[:2]),
    "missing": [],
    "time": 100.0,
    "disk": {"folder": "/data", "kind": "ext4", "free": 1 << 40, "sync_ms": 3.0},
}


@pytest.mark.parametrize(
    ("change", "level", "text"),
    [
        ({"version": [3, 9]}, "missing", "/python is Python 3.9, the driver is"),
        ({"time": 9.0}, "slow", "its clock is 90 s behind this machine's"),
        ({"disk": {**ANSWER["disk"], "kind": "nfs4"}}, "missing", "/data is on a network file system (nfs4)"),
        ({"disk": {**ANSWER["disk"], "free": 5 << 20}}, "missing", "/data has only 5 MiB free"),
        ({"disk": {"folder": "/data", "error": "Permission denied"}}, "missing", "cannot be written to /data"),
        ({"disk": {**ANSWER["disk"], "sync_ms": 900.0}}, "slow", "to sync a file in /data takes 900 ms"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_each_problem_of_a_host_is_found_alone(change, level, text):
    found = findings("host a", "/python", {**ANSWER, **change}, (99.0, 101.0))
    (problem,) = [finding for finding in found if finding.level != "fine"]
    assert problem.level == level
    assert text in problem.text
    assert problem.fix


def test_a_failure_of_spark_is_a_finding_of_one_line(tmp_path, monkeypatch):
    def fail(spark, ask):
        raise PySparkException("An error occurred while calling o1.collect\n: Job aborted: no space\n\tat java.base/x")

    monkeypatch.setattr("tidewheel._doctor.examination._spark", lambda spark: ())
    monkeypatch.setattr("tidewheel._doctor.hosts.ask_hosts", fail)
    session = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://host:7077"))
    *_, failed = examine(f"file://{tmp_path}/state", spark=session)
    assert (failed.subject, failed.level) == ("Spark", "missing")
    assert failed.text == "a job on the hosts failed: Job aborted: no space"


def test_a_cluster_without_executors_is_warned_of(caplog):
    with warned_of_waiting("spark://host:7077", patience=0.0):
        eventually(lambda: caplog.messages, "the warning")
    assert caplog.messages == [
        "waiting for executors of spark://host:7077: it must have a worker with the cores and memory that the job asks for"
    ]


def test_a_host_with_another_python_is_named():
    text = (
        "Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.2 executor 1): [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version: (3, 9) than that in driver: 3.11, PySpark cannot run with different minor versions."
    )
    assert "the host 10.0.0.2 runs tasks with Python 3.9, and the driver has another one" in str(explained(text))
