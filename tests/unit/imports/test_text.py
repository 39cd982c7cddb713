"""State imported from CSV files and JSON lines: with the types that the program declares, and keys of the right type."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from support.internals import app
from tidewheel import Job, StoredJob
from tidewheel._imports import text as import_text
from tidewheel.errors import ConfigError, StateError, StepError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


@dataclass
class Account:
    balance: int = 0
    share: float = 0.0
    owner: str = ""
    vip: bool = False
    since: datetime | None = None
    note: str | None = None


@dataclass
class Payment:
    user: int
    amount: int


def by_user(record) -> str:
    return record["user"]


def job_of(tmp_path, key=by_user, *, value=dict, **state) -> Job:
    made = Job("bank", state=f"file://{tmp_path}/state", n_shards=4)
    keyed = made.source("in", iterable([]), type=value).key_by("by", key)
    keyed.stateful_map("account", lambda key, record, kept: (kept, kept), **(state or {"state": Account})).sink(
        "out", collect()
    )
    return made


def written(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def scanned(job, **options):
    return dict(StoredJob(job.name, state=job.state).scan("account", **options))


def test_the_values_of_a_csv_file_have_the_types_of_the_state(tmp_path):
    job = job_of(tmp_path)
    file = written(
        tmp_path,
        "accounts.csv",
        "balance,key,share,owner,vip,since,note\n"
        '10,ada,0.5,"A, ""Countess""",true,2024-01-02T03:04:05Z,\n'
        "\n"
        "-3,7,2,7,False,,hello\n",
    )
    assert job.import_state("account", file) == 2
    assert scanned(job, type=Account) == {
        "ada": Account(10, 0.5, 'A, "Countess"', True, datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), None),
        "7": Account(-3, 2.0, "7", False, None, "hello"),
    }


def test_a_plain_state_is_in_the_column_value_and_a_count_stays_an_int(tmp_path):
    job = job_of(tmp_path, default=0)
    assert job.import_state("account", written(tmp_path, "a.csv", "user,value\nada,3\nbob,0.5\n"), key="user") == 2
    kept = scanned(job)
    assert kept == {"ada": 3, "bob": 0.5}
    assert [type(value) for value in kept.values()] == [int, float] or [type(v) for v in kept.values()] == [float, int]


def test_a_tab_separates_in_a_tsv_file_and_files_may_be_compressed(tmp_path):
    job = job_of(tmp_path, state=str)
    with gzip.open(tmp_path / "a.tsv.gz", "wt") as file:
        file.write("key\tvalue\nada\tone, two\nbob\t\n")
    assert job.import_state("account", tmp_path / "a.tsv.gz") == 2
    assert scanned(job) == {"ada": "one, two", "bob": ""}


def test_a_folder_of_files_is_imported_as_one(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    written(folder, "b.csv", "key,balance\nbob,2\n")
    written(folder, "a.csv", "balance,key\n1,ada\n")
    job = job_of(tmp_path)
    assert job.import_state("account", folder) == 2
    assert scanned(job, type=Account) == {"ada": Account(1), "bob": Account(2)}


def test_json_lines_have_their_own_types(tmp_path):
    job = job_of(tmp_path)
    file = written(
        tmp_path,
        "a.jsonl",
        '{"key": "ada", "balance": 10, "since": "2024-01-02T03:04:05Z"}\n\n{"key": "7", "owner": "x"}\n',
    )
    assert job.import_state("account", file) == 2
    assert scanned(job, type=Account)["ada"].since == datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    bare = job_of(tmp_path / "bare", lambda record: record["user"], default=dict)
    assert bare.import_state("account", written(tmp_path, "b.json", '{"key": 7, "value": {"n": [1]}}\n')) == 1
    assert scanned(bare) == {7: {"n": [1]}}


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        (
            "a.csv",
            "key,balance\nada,1\nbob,much\n",
            r"a\.csv, line 3: the column 'balance' has 'much', which is not int",
        ),
        ("a.csv", "key,balance\nada, 1\n", r"line 2: the column 'balance' has ' 1', which is not int"),
        ("a.csv", "key,balance\nada,\n", r"line 2: the column 'balance' has '', which is not int"),
        ("a.csv", "key,balance\nada,1,2\n", r"line 2: it has 3 values, and the first line names 2 columns"),
        ("a.csv", "key,balance\n,1\n", r"line 2: the column 'key' has no key"),
        ("a.csv", "key,vip\nada,1\n", r"line 2: .* '1', which is not bool \(true or false\)"),
        ("a.csv", "key,since\nada,soon\n", r"a\.csv, line 2: the state of key 'ada' does not fit .*since"),
        ("a.csv", 'key,owner\nada,"x\nbob,1\n', r"line 3: it is not valid CSV"),
        ("a.csv", "key,ballance\nada,1\n", r"there is the column 'ballance'\. Found ballance and the key"),
        ("a.csv", "key,key\nada,1\n", r"line 1: the column 'key' is named twice"),
        ("a.csv", "", r"line 1: there is no first line with the names"),
        ("a.jsonl", '{"key": "a"}\n{"key": \n', r"a\.jsonl, line 2: it is not valid JSON"),
        ("a.jsonl", "[1]\n", r"line 1: it is list, not an object"),
        ("a.jsonl", '{"key": "a", "balance": "1"}\n', r"line 1: the state of key 'a' does not fit .*Expected `int`"),
        ("a.jsonl", '{"key": "a"}\n{"key": "b", "x": 1}\n', r"line 2: .*there is the column 'x'"),
        (
            "a.jsonl",
            '{"key": 7}\n',
            r"line 1: the key 7 is of type int, and the keys of 'account' are of type str, as the program",
        ),
        ("a.jsonl", '{"key": null}\n', r"line 1: a key must not be None"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(tmp_path, name, text, error):
    job = job_of(tmp_path)
    with pytest.raises(StateError, match=error):
        job.import_state("account", written(tmp_path, name, text))
    assert not (tmp_path / "state").exists()


def test_a_file_without_the_key_or_with_other_bytes_is_reported(tmp_path):
    job = job_of(tmp_path)
    with pytest.raises(ConfigError, match=r"a\.csv, line 1: there is no column 'key'.*the columns are ada, 3"):
        job.import_state("account", written(tmp_path, "a.csv", "ada,3\n"))
    (tmp_path / "b.csv").write_bytes(b"key,owner\nada,\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"b\.csv has bytes that are not UTF-8"):
        job.import_state("account", tmp_path / "b.csv")
    with pytest.raises(ConfigError, match=r"^there is no file .*nowhere\.csv"):
        job.import_state("account", tmp_path / "nowhere.csv")
    (tmp_path / "mixed").mkdir()
    written(tmp_path / "mixed", "a.csv", ""), written(tmp_path / "mixed", "a.json", "")
    with pytest.raises(ConfigError, match=r"several formats: csv, json"):
        job.import_state("account", tmp_path / "mixed")


def test_a_csv_file_needs_declared_types(tmp_path):
    file = written(tmp_path, "a.csv", "key,value\nada,1\n")
    for state in ({"default": dict}, {"state": list[int]}, {"state": int | str}):
        with pytest.raises(StateError, match=r"whose cells are all text, and the type of the column 'value' is"):
            job_of(tmp_path, **state).import_state("account", file)


def test_keys_have_the_type_that_the_program_declares(tmp_path):
    file = written(tmp_path, "a.csv", "key,balance\n7,1\n")
    by_column = job_of(tmp_path, "user", value=Payment)
    assert by_column.import_state("account", file) == 1
    assert list(scanned(by_column)) == [7]
    by_function = job_of(tmp_path / "text")
    assert by_function.import_state("account", file) == 1
    assert list(scanned(by_function)) == ["7"]
    with pytest.raises(StateError, match="line 2: the column 'key' has 'ada', which is not int"):
        by_column.import_state("account", written(tmp_path, "b.csv", "key,balance\nada,1\n"))
    with pytest.raises(StateError, match=r"the key '7' is of type str, and the keys of 'account' are of type int"):
        by_column.import_state("account", pa.table({"key": ["7"], "balance": [1]}))


def test_undeclared_keys_that_look_like_numbers_need_a_type(tmp_path):
    file = written(tmp_path, "a.csv", "key,balance\n007,1\n8,1\n")
    job = job_of(tmp_path, lambda record: record["user"])
    with pytest.raises(
        StateError, match=r"look like numbers \(007\).*7 and '7' are different keys\. say --key-type int"
    ):
        job.import_state("account", file)
    assert not (tmp_path / "state").exists()
    assert job.import_state("account", file, key_type=str) == 2
    assert set(scanned(job)) == {"007", "8"}
    numbers = job_of(tmp_path / "numbers", lambda record: record["user"])
    assert numbers.import_state("account", file, key_type="int") == 2
    assert set(scanned(numbers)) == {7, 8}
    texts = job_of(tmp_path / "texts", lambda record: record["user"])
    assert texts.import_state("account", written(tmp_path, "b.csv", "key,balance\n7,1\nada,1\n")) == 2
    assert set(scanned(texts)) == {"7", "ada"}
    with pytest.raises(ConfigError, match="one of str, int, float, bool, not 'uuid'"):
        texts.import_state("account", file, key_type="uuid")


def test_a_job_whose_keys_are_of_another_type_than_the_imported_ones_stops(tmp_path):
    job = job_of(tmp_path, lambda record: record["user"])
    job.import_state("account", pa.table({"key": ["7"], "balance": [1]}))
    with pytest.raises(StateError, match="has keys of type str from an earlier import, and these are of type int"):
        job.import_state("account", [(7, {"balance": 1})])
    with (
        MemoryRun(job) as run,
        pytest.raises(StepError, match=r"'by'.*: all keys must be of one type, not int and str"),
    ):
        run.batch({"in": [{"user": 7}]})


def test_the_command_shows_how_keys_were_read(tmp_path, monkeypatch):
    program = """
from tidewheel import Job, sinks, sources
job = Job("ranks", state="file:state")
orders = job.source("in", sources.iterable([]), type=dict).key_by("by", lambda order: order["user"])
orders.stateful_map("rank", lambda key, order, rank: (rank, rank), default="?").sink("out", sinks.collect())
"""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "ranks.py", program)
    written(tmp_path, "ranks.csv", "user,value\nada,gold\n")
    written(tmp_path, "numbers.csv", "user,value\n7,gold\n")

    def ran(*arguments):
        return CliRunner().invoke(app, ["state", "import", "ranks.py", "rank", *arguments, "--key", "user"])

    told = ran("ranks.csv")
    assert told.stdout == "1 keys imported into rank of ranks; the keys were read as text (--key-type says otherwise)\n"
    assert "look like numbers" in ran("numbers.csv").output
    assert ran("numbers.csv", "--key-type", "str").stdout == "1 keys imported into rank of ranks\n"
    assert "'uuid' is not one of" in ran("numbers.csv", "--key-type", "uuid").output


def test_a_long_csv_value_is_imported_without_changing_the_global_limit(tmp_path):
    job, before = job_of(tmp_path), csv.field_size_limit()
    note = "long " * 40_000
    assert job.import_state("account", written(tmp_path, "accounts.csv", f"key,note\nada,{note}\n")) == 1
    assert scanned(job, type=Account)["ada"].note == note
    assert csv.field_size_limit() == before < len(note)


def test_an_unclosed_quote_in_a_csv_file_is_reported_with_its_line(tmp_path):
    text = "key,note\nada,fine\n" + 'bob,"open\n' + "key,text\n" * 1000
    before = import_text._CSV.field_size_limit(1000)
    try:
        with pytest.raises(StateError, match=r"accounts.csv, line 3: .* more than 1,000 characters; close its quote"):
            job_of(tmp_path).import_state("account", written(tmp_path, "accounts.csv", text))
    finally:
        import_text._CSV.field_size_limit(before)
