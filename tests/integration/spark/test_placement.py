"""Tasks run on the hosts that are chosen for them: those of plain jobs, and those behind a shuffle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from servers.spark_cluster import running_cluster

PROGRAM = Path(__file__).with_name("placement_program.py")


def test_tasks_run_on_the_hosts_that_are_chosen_for_them(tmp_path):
    with running_cluster(tmp_path / "cluster") as cluster:
        workers = [cluster.add_worker() for _ in range(3)]
        cluster.wait_for_workers()
        # A busy machine must not decide where tasks run.
        settings = {**cluster.conf(), "spark.locality.wait": "300s"}
        command = [sys.executable, str(PROGRAM), cluster.url, json.dumps(settings)]
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert said.returncode == 0, said.stderr[-3000:]
    at = {f"127.0.0.{2 + number}": str(worker.local) for number, worker in enumerate(workers)}
    rounds = [json.loads(line) for line in said.stdout.splitlines()]
    assert [len(hosts) for hosts, *_ in rounds] == [2, 2, 5, 5]
    for hosts, plain, shuffled, queues in rounds:
        assert plain == shuffled == [at[host] for host in hosts]
        # Each worker has one core, for which the tasks of its host wait.
        assert queues == [[task for task, at in enumerate(hosts) if at == host] for host in dict.fromkeys(hosts)]
