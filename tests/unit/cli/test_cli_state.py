"""`tidewheel state`: keys, get, scan, export, import."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from support.internals import app
from tidewheel import Job, sum_, tumbling
from tidewheel._cli.program import load_job
from tidewheel.sinks import discard
from tidewheel.testing import MemoryRun

PROGRAM = """
from tidewheel import Job
from tidewheel.sinks import discard
from tidewheel.sources import iterable

job = Job("orders", state="file:{state}", n_shards=4)
stream = job.source("in", iterable([]), type=dict)
for name, key in {{"sum": lambda r: r["key"], "by-number": lambda r: r["n"], "by-both": lambda r: (r["key"], r["n"])}}.items():
    keyed = stream.key_by(f"key-of-{{name}}", key)
    sums = keyed.stateful_map(name, lambda key, record, total: (total, total + record["n"]), default=0)
    sums.sink(f"out-of-{{name}}", discard())
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "orders.py"
    path.write_text(PROGRAM.format(state=tmp_path / "state"))
    return str(path)


@pytest.fixture
def state(program, tmp_path) -> str:
    with MemoryRun(load_job(program)) as run:
        for _ in range(2):
            run.batch({"in": [{"key": key, "n": n} for n, key in enumerate(["ada", "abe", "bob"], 1)]})
    return str(tmp_path / "state")


def cli(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result.output


def lines(text: str) -> list:
    return [json.loads(line) for line in text.splitlines()]


def test_keys(state):
    found = lines(cli("state", "keys", "orders", "sum", "-s", state))
    assert sorted(found) == ["abe", "ada", "bob"]
    assert sorted(lines(cli("state", "keys", "orders", "by-both", "-s", state))) == [["abe", 2], ["ada", 1], ["bob", 3]]
    assert sorted(lines(cli("state", "keys", "orders", "sum", "-s", state, "--prefix", "a"))) == ["abe", "ada"]
    assert len(lines(cli("state", "keys", "orders", "sum", "-s", state, "--limit", "2"))) == 2


def test_a_reader_that_has_enough_is_no_error(state):
    command = [sys.executable, "-m", "tidewheel", "state", "keys", "orders", "sum", "-s", state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_get_finds_text_numbers_and_tuples(state):
    assert cli("state", "get", "orders", "sum", "ada", "-s", state) == "2\n"
    assert cli("state", "get", "orders", "by-number", "2", "-s", state) == "4\n"
    assert cli("state", "get", "orders", "by-both", '["bob", 3]', "-s", state) == "6\n"
    answer = json.loads(cli("state", "get", "orders", "sum", "bob", "-s", state, "--at", "2", "--json"))
    assert answer == {"step": "sum", "key": "bob", "found": True, "value": 3, "sequence": 2}


def test_get_of_a_missing_key(state):
    for operator, key, named in (("sum", "nobody", "'nobody'"), ("by-number", "-5", "-5")):
        result = CliRunner().invoke(app, ["state", "get", "orders", operator, key, "-s", state])
        assert (result.exit_code, result.stdout) == (1, "null\n")
        assert result.stderr == f"key {named} has no state in step {operator!r} at checkpoint 4\n"
    refusal = cli("state", "get", "orders", "by-number", '"2"', "-s", state, status=1)
    assert "keys of 'by-number' are int, not str: give 2, not '2'. It is 2 in a shell" in refusal
    assert "no step 'total'; there are 'by-both', 'by-number', 'sum'" in cli(
        "state", "get", "orders", "total", "ada", "-s", state, status=1
    )


def test_scan_at_a_savepoint(state):
    cli("checkpoints", "savepoint", "orders", "early", "--at", "2", "-s", state)
    found = lines(cli("state", "scan", "orders", "sum", "-s", state, "--at", "early", "--prefix", "a"))
    assert sorted((row["key"], row["value"]) for row in found) == [("abe", 2), ("ada", 1)]


def test_export_then_import_into_another_job(program, tmp_path):
    table = pa.table({"user": ["ada", "bob"], "value": [5, 6]})
    parquet.write_table(table, tmp_path / "in.parquet")
    told = cli("state", "import", program, "sum", str(tmp_path / "in.parquet"), "--key", "user")
    assert told == "2 keys imported into sum of orders\n"
    state, out = str(tmp_path / "state"), str(tmp_path / "out.parquet")
    assert cli("state", "export", "orders", "sum", out, "-s", state) == f"2 keys in {out}\n"
    assert sorted(map(str, parquet.read_table(out).to_pylist())) == sorted(
        map(str, [{"key": "ada", "value": 5}, {"key": "bob", "value": 6}])
    )


def test_a_look_up_needs_neither_arrow_nor_spark(state):
    program = (
        "import sys\n"
        "from tidewheel._program.stored_job import StoredJob\n"
        "assert StoredJob('orders', state=sys.argv[1]).get('sum', 'ada').value == 2\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'pandas', 'lmdb', 'cloudpickle', 'typer'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program, state], check=True)


def test_diff_shows_the_key_and_the_time_of_a_timer(tmp_path):
    job = Job("timed", state=f"file:{tmp_path}/state", n_shards=4)
    timed = job.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at", unit="ns")
    keyed = timed.limit_out_of_orderness("bound", "1 s", max_ahead=None).key_by("by", "k")
    keyed.window("sums", tumbling("10 ns"), n=sum_("n")).sink("out", discard())
    with MemoryRun(job) as run:
        run.batch({"in": [{"k": "ada", "n": 1, "at": 3}]})
        newest = run.run.head.sequence
    output = cli("checkpoints", "diff", "timed", "1", str(newest), "-s", f"{tmp_path}/state", "--json")
    (timers,) = [each for each in lines(output) if each["step"] == "sums/timers"]
    assert [sample["key"] for sample in timers["samples"]] == [{"key": "ada", "time": 9, "name": "", "clock": "event"}]
