"""Spark runs a map task a second time, with different output, after a task has consumed the first output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidewheel import StoredJob

PROGRAM = r"""
import glob, json, os, random, sys

from pyspark.sql import SparkSession

from tidewheel import Job, RunOptions
from tidewheel.sinks import discard
from tidewheel.sources import files

folder = sys.argv[1]


def anywhere(record):
    return random.Random(os.urandom(8)).randrange(64)


def counted(key, value, count):
    # Spark finds the output of the map tasks missing, and runs them again for the tasks that have not read it yet.
    try:
        os.close(os.open(f"{folder}/first", os.O_CREAT | os.O_EXCL))
        for file in glob.glob(f"{folder}/spark/**/shuffle_*", recursive=True):
            os.unlink(file)
    except FileExistsError:
        pass
    return None, count + 1


job = Job("twice", state=f"file://{folder}/state", n_shards=16)
stream = job.source("in", files(f"{folder}/in", format="json", schema="n bigint"))
stream.key_by("any", anywhere).stateful_map("count", counted, default=0).sink("out", discard())
builder = SparkSession.builder.master("local[1]").config("spark.local.dir", f"{folder}/spark")
builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
for name in ("enabled", "enableFullRetryOnMismatch", "enableQueryLevelRollbackOnMismatch"):
    builder = builder.config(f"spark.sql.shuffle.orderIndependentChecksum.{name}", sys.argv[2])
spark = builder.getOrCreate()
job.run(until="end", parallelism=4, options=RunOptions(spark=spark, local=f"{folder}/local"))
"""

ROWS = 60_000


@pytest.mark.parametrize(
    ("spark_compares", "why"),
    [
        ("false", "processed output of another attempt of task 0 of level 0 than the one that reported"),
        ("true", "an executor, or its part of a shuffle, was lost"),
    ],
)
def test_a_map_task_that_ran_twice_is_detected_and_the_batch_runs_again(tmp_path: Path, spark_compares: str, why: str):
    """From 4.1 on Spark compares checksums of the two outputs and gives the batch up; without them, the reports show it."""
    (tmp_path / "in").mkdir()
    for number in range(2):
        lines = (json.dumps({"n": n}) for n in range(number, ROWS, 2))
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", str(tmp_path), spark_compares]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert re.search(rf"{why}.*; batch 0 runs again from commit \d", ran.stderr)
    stored = StoredJob("twice", state=f"file://{tmp_path}/state")
    assert sum(count for _, count in stored.scan("count")) == ROWS
