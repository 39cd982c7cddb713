"""F: bad input gets an error that names what was found and what to do; nothing committed is lost."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidewheel import Job, RunOptions, codecs
from tidewheel._checkpoint import encoding
from tidewheel._spark.java import find_java
from tidewheel.errors import ConfigError, GraphError, HeldError, StateError, StepError, TidewheelError
from tidewheel.sinks import collect
from tidewheel.sources import files, iterable
from tidewheel.testing import MemoryRun


@dataclasses.dataclass
class Click:
    user: str
    amount: int


def counting(job: Job, source=None) -> Job:
    (
        job.source("in", source or iterable([]), type=int)
        .key_by("by", lambda value: value)
        .stateful_map("count", lambda key, value, n: (n + 1, n + 1), default=0)
        .sink("out", collect())
    )
    return job


def committed(job: Job) -> int:
    with MemoryRun(job) as run:
        run.batch({"in": [1, 2]})
        return run.run.head.sequence


def test_f_an_unknown_scheme_names_the_ones_there_are(tmp_path):
    with pytest.raises(ConfigError, match=r"ftp.*file"):
        counting(Job("j", state="ftp://somewhere/else")).run()


def test_f_no_java_says_how_to_install_one(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tidewheel._spark.java._PACKAGE", "a_package_that_is_not_installed")
    with pytest.raises(ConfigError, match=r"needs Java 17 or newer.*no `java` on the PATH.*apt-get install"):
        find_java()


def test_f_a_java_that_is_too_old_is_named(monkeypatch, tmp_path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"is Java 11; install"):
        find_java()


def test_f_a_state_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TidewheelError, match=r"file/state"):
        MemoryRun(counting(Job("j", state=f"file://{tmp_path}/file/state")))


def test_f_a_missing_input_folder_is_named(spark, tmp_path):
    job = counting(Job("j", state=f"file://{tmp_path}/state"), files(f"{tmp_path}/nowhere", schema="value long"))
    with pytest.raises(ConfigError, match="nowhere"):
        job.run(until="end", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))


def test_f_a_schema_that_lacks_a_column_is_refused_when_the_graph_is_built(tmp_path):
    (tmp_path / "in").mkdir()
    job = Job("j", state=f"file://{tmp_path}/state")
    source = job.source("in", files(f"{tmp_path}/in", format="json", schema="user string"))
    with pytest.raises(GraphError, match=r"step 'by' \(key_by\): there is no column 'amount'; Row has user"):
        source.key_by("by", "user", value="amount")


def test_f_an_undecodable_record_stops_the_job_and_names_it(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"user": "ada", "amount": 1}\nthis is not JSON\n')
    job = Job("j", state=f"file://{tmp_path}/state")
    source = job.source("in", files(f"{tmp_path}/in", format="json", schema="user string, amount long"))
    source.key_by("by", "user", value="amount").stateful_map("sum", lambda k, v, s: (s + v, s + v), default=0).sink(
        "out", collect()
    )
    with pytest.raises(
        StepError, match=r"step 'in', record 'this is not JSON': line 2 of .*/a\.json: it is not one JSON value"
    ):
        job.run(until="end", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))


def test_f_a_file_that_is_not_of_its_format_is_named_in_one_line(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "clicks").write_text('{"user": "ada"}\n')
    job = Job("j", state=f"file://{tmp_path}/state")
    source = files(f"{tmp_path}/in", "parquet", schema="user string")
    job.source("in", source).map("same", lambda click: click.user).sink("out", collect())
    with pytest.raises(
        TidewheelError, match=r"in/clicks (is not a Parquet file|cannot be read as a Parquet)"
    ) as raised:
        job.run(until="end", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert "An error occurred" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_f_a_broken_line_is_kept_as_text_and_the_job_continues(spark, tmp_path):
    (tmp_path / "in").mkdir()
    bad = ['{"user": "ada", "amount": "three"}', "this is not JSON"]
    (tmp_path / "in" / "a.json").write_text("\n".join(['{"user": "ada", "amount": 1}', *bad]))
    job = Job("j", state=f"file://{tmp_path}/state")
    clicks = job.source("in", files(f"{tmp_path}/in", "text")).decode("parse", codecs.json(Click))
    broken = clicks.broken
    good, kept = collect(), collect()
    clicks.sink("out", good)
    broken.sink("broken", kept)
    job.run(until="end", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert good.records == [{"user": "ada", "amount": 1}]
    assert [row["value"] for row in kept.records] == bad
    assert kept.records[0]["error"] == "json: ValidationError: Expected `int`, got `str` - at `$.amount`"


def test_f_state_of_a_newer_version_is_refused_with_both_versions(tmp_path, monkeypatch):
    state = f"file://{tmp_path}/state"
    with monkeypatch.context() as newer:
        newer.setattr(encoding, "VERSION", encoding.VERSION + 1)
        committed(counting(Job("j", state=state)))
    with pytest.raises(StateError, match=rf"{encoding.VERSION + 1}.*{encoding.VERSION}"):
        MemoryRun(counting(Job("j", state=state)))


def test_f_a_changed_n_shards_is_refused_with_both_numbers(tmp_path):
    state = f"file://{tmp_path}/state"
    committed(counting(Job("j", state=state, n_shards=8)))
    with pytest.raises(StateError, match=r"n_shards=16.*made with 8"):
        MemoryRun(counting(Job("j", state=state, n_shards=16)))


def test_f_n_shards_must_be_a_power_of_two():
    with pytest.raises(ConfigError, match="power of two"):
        Job("j", n_shards=12)


def test_f_a_second_run_is_refused_and_the_error_names_the_holder(tmp_path):
    job = counting(Job("j", state=f"file://{tmp_path}/state"))
    with MemoryRun(job), pytest.raises(HeldError, match=r"run \w+ of this process.*run\.stop\(\).*take_over=True"):
        MemoryRun(counting(Job("j", state=f"file://{tmp_path}/state")))


def test_f_a_failing_batch_loses_nothing_that_was_committed(tmp_path):
    state = f"file://{tmp_path}/state"
    before = committed(counting(Job("j", state=state)))
    job = Job("j", state=state)
    (
        job.source("in", iterable([]), type=int)
        .key_by("by", lambda value: value)
        .stateful_map("count", lambda key, value, n: (1 // (value - 1), n + 1), default=0)
        .sink("out", collect())
    )
    with MemoryRun(job) as run:
        with pytest.raises(StepError, match=r"step 'count', key 1, record 1: ZeroDivisionError"):
            run.batch({"in": [3, 1]})
        # The clean stop of the run before, and this one's claim.
        assert run.run.head.sequence == before + 2
        assert run.run.head.event_count == 2


PROGRAM = """
from tidewheel import Job, codecs
from tidewheel.sinks import collect
from tidewheel.sources import iterable
job = Job("j", state={state!r})
job.source("in", iterable([1])).map("double", lambda v: v).sink("out", collect())
"""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["missing.py"], "missing.py"),
        (["program.py:nothing"], "nothing"),
        (["program.py", "--every", "continuous"], "continuous"),
    ],
)
def test_f_the_shell_shows_an_error_without_a_stack_trace(tmp_path, arguments, told):
    (tmp_path / "program.py").write_text(PROGRAM.format(state=f"file://{tmp_path}/state"))
    done = subprocess.run(
        [sys.executable, "-m", "tidewheel", "run", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_f_a_full_disk_is_reported_with_the_path(tmp_path):
    """The file size limit stands in for the full disk: the same write fails in the same place."""
    script = tmp_path / "full.py"
    script.write_text(
        "import resource, signal, sys\n"
        "from tidewheel._storage import open_store\n"
        "from tidewheel.errors import StorageError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "store = open_store(sys.argv[1])\n"
        "try:\n"
        "    store.create('state/big.delta', b'x' * 5000)\n"
        "except StorageError as error:\n"
        "    print(error)\n"
        "print([entry.path for entry in store.list('')])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), f"file://{tmp_path}/s"], capture_output=True, text=True, check=True
    )
    said, listed = done.stdout.splitlines()
    assert "big.delta" in said
    assert listed == "[]"
    assert not list(Path(tmp_path).rglob("*.delta"))
