"""Jobs on YARN, with Hadoop's own resource manager and node manager: client mode, cluster mode, an attempt that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from servers.yarn_cluster import YarnCluster, running_yarn
from support.waiting import eventually
from tidewheel import StoredJob
from tidewheel.errors import NotFound, StateError

PROGRAM = Path(__file__).with_name("clicks.py")
SOURCES = Path(__file__).parents[3] / "src"


@pytest.fixture
def yarn(tmp_path):
    with running_yarn(tmp_path / "yarn") as cluster:
        yield cluster


def write(folder: Path, numbers: range) -> Counter[str]:
    """Write a file for each number; return what they add to the totals."""
    (folder / "in").mkdir(exist_ok=True)
    totals: Counter[str] = Counter()
    for number in numbers:
        rows = [{"user": f"u{row % 7}", "cents": row + number} for row in range(100)]
        written = folder / "in" / f".{number}"
        written.write_text("".join(json.dumps(row) + "\n" for row in rows))
        written.rename(folder / "in" / f"{number}.json")
        for row in rows:
            totals[row["user"]] += row["cents"]
    return totals


def totals(folder: Path) -> dict[str, int]:
    """Return the committed state; empty before the first commit."""
    try:
        return dict(StoredJob("clicks", state=str(folder / "state")).scan("total"))
    except (NotFound, StateError):
        return {}


def environment(yarn: YarnCluster, folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HADOOP_CONF_DIR": str(yarn.conf),
        "CLICKS_FOLDER": str(folder),
        "PYTHONPATH": str(SOURCES),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def conf(yarn: YarnCluster) -> list[str]:
    return [f"--conf={name}={value}" for name, value in yarn.settings(sys.executable).items()]


def test_client_mode_runs_tasks_in_containers(tmp_path, yarn):
    expected = write(tmp_path, range(3))
    command = [sys.executable, "-m", "tidewheel", "run", str(PROGRAM), "--master", "yarn", "--until", "caught-up"]
    command += ["--shared-state", "--parallelism", "2", *conf(yarn)]
    ended = subprocess.run(command, env=environment(yarn, tmp_path), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:] + yarn.logs()
    assert totals(tmp_path) == expected
    (application,) = yarn.applications()
    assert application["applicationType"] == "SPARK"
    eventually(lambda: yarn.applications()[0]["finalStatus"] == "SUCCEEDED", "the end of the application")


@pytest.mark.slow
def test_cluster_mode_continues_after_an_attempt_has_died(tmp_path, yarn):
    """YARN starts the driver. When it dies, the next attempt continues from the last commit: nothing is lost or doubled."""
    expected = write(tmp_path, range(3))
    settings = {
        "spark.yarn.maxAppAttempts": "3",
        "spark.yarn.appMasterEnv.PYTHONPATH": str(SOURCES),
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
    }
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        "--master",
        "yarn",
        "--deploy-mode",
        "cluster",
    ]
    command += [*conf(yarn), *(f"--conf={name}={value}" for name, value in settings.items())]
    with (tmp_path / "submit.log").open("w") as log:
        submitted = subprocess.Popen(
            [*command, str(PROGRAM), str(tmp_path)], env=environment(yarn, tmp_path), stdout=log, stderr=log
        )
    try:
        wait_for(tmp_path, yarn, submitted, lambda: totals(tmp_path) == expected)
        yarn.kill_driver()
        expected += write(tmp_path, range(3, 6))
        wait_for(tmp_path, yarn, submitted, lambda: totals(tmp_path) == expected)
        (application,) = yarn.applications()
        assert len(yarn.attempts(application["id"])) == 2
        StoredJob("clicks", state=str(tmp_path / "state")).stop()
        assert submitted.wait(600) == 0
        assert yarn.applications()[0]["finalStatus"] == "SUCCEEDED"
    finally:
        submitted.send_signal(signal.SIGKILL)
        submitted.wait()
    published = Counter()
    for path in (tmp_path / "out").rglob("*.json"):
        for line in path.read_text().splitlines():
            published[json.loads(line)["user"]] += 1
    assert published == Counter({f"u{number}": 6 for number in range(7)})


def wait_for(folder: Path, yarn: YarnCluster, submitted: subprocess.Popen, condition) -> None:
    def ended_or_so() -> bool:
        assert submitted.poll() is None, (folder / "submit.log").read_text()[-3000:] + yarn.logs()
        return condition()

    eventually(ended_or_so, "the commits", seconds=600)
