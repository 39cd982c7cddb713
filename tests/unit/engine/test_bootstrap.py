"""State imported before a job's first batch, and exported again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pytest
from pyarrow import parquet

from tidewheel import Job, StoredJob, sum_
from tidewheel.errors import ConfigError, GraphError, StateError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


@dataclass
class Account:
    balance: int = 0
    owner: str = ""


def pay(key: str, record: dict, account: Account) -> tuple[int, Account]:
    return account.balance, Account(account.balance + record["amount"], account.owner)


@pytest.fixture
def job(tmp_path) -> Job:
    made = Job("bank", state=f"file://{tmp_path}/state", n_shards=4)
    stream = made.source("in", iterable([]), type=dict).key_by("by", lambda record: record["user"])
    stream.stateful_map("account", pay).sink("out", collect())
    stream.aggregate("sums", n=sum_("amount")).sink("sums-out", collect())
    return made


def stored(job: Job) -> StoredJob:
    return StoredJob(job.name, state=job.state)


TABLE = pa.table({"key": ["ada", "bob"], "balance": [10, 20], "owner": ["A", "B"]})


def test_a_job_starts_with_imported_state(job, tmp_path):
    parquet.write_table(TABLE, tmp_path / "accounts.parquet")
    assert job.import_state("account", tmp_path / "accounts.parquet") == 2
    assert stored(job).show().kind == "import"
    with MemoryRun(job) as run:
        run.batch({"in": [{"user": "ada", "amount": 5}]})
    assert dict(stored(job).scan("account", type=Account)) == {"ada": Account(15, "A"), "bob": Account(20, "B")}


def test_export_and_import_are_inverse(job, tmp_path):
    job.import_state("account", TABLE)
    assert stored(job).export("account", tmp_path / "out.parquet") == 2
    again = parquet.read_table(tmp_path / "out.parquet").sort_by("key")
    assert again.equals(TABLE)


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl.gz", "out.orc"])
def test_an_export_is_not_written_under_the_name_of_another_format(job, tmp_path, name):
    job.import_state("account", TABLE)
    with pytest.raises(ConfigError, match=r"an export is a Parquet file, .* call it .*/out\.parquet"):
        stored(job).export("account", tmp_path / name)
    assert not (tmp_path / name).exists()


def test_pairs_replace_the_state_of_an_earlier_import(job):
    job.import_state("account", TABLE)
    job.import_state("account", [("bob", {"balance": 7}), ("cid", {})])
    assert dict(stored(job).scan("account", type=Account)) == {
        "ada": Account(10, "A"),
        "bob": Account(7),
        "cid": Account(),
    }


def test_invalid_imports_are_refused(job):
    with pytest.raises(StateError, match=r"key 'ada' does not fit what 'account' declares.*balance"):
        job.import_state("account", [("ada", {"balance": "much"})])
    with pytest.raises(StateError, match="'ada' comes twice"):
        job.import_state("account", [("ada", {}), ("ada", {})])
    with pytest.raises(GraphError, match=r"into 'sums'.*there are 'account'"):
        job.import_state("sums", TABLE)
    with pytest.raises(ConfigError, match=r"no column 'user' for the keys; the columns are key, balance.*--key"):
        job.import_state("account", TABLE, key="user")
    with pytest.raises(ConfigError, match=r"^there is no file nowhere"):
        job.import_state("account", "nowhere.parquet")


def plain(tmp_path, function=lambda key, record, rank: (rank, rank), **state) -> Job:
    made = Job("ranks", state=f"file://{tmp_path}/state", n_shards=4)
    stream = made.source("in", iterable([]), type=dict).key_by("by", lambda record: record["user"])
    stream.stateful_map("rank", function, **state).sink("out", collect())
    return made


def test_columns_that_do_not_fit_a_plain_state_are_refused(tmp_path):
    names = pa.table({"key": ["ada"], "rank": ["gold"]})
    parquet.write_table(names, tmp_path / "ranks.parquet")
    for state in ({"default": "?"}, {"default": lambda: "?"}, {"state": str}, {"state": str | None}):
        made = plain(tmp_path, **state)
        with pytest.raises(
            StateError,
            match=r"into 'rank' from .*ranks\.parquet: its state is a plain str, which is in a column called 'value'"
            r".*\. Found rank \(string\) and the key 'key'; rename",
        ):
            made.import_state("rank", tmp_path / "ranks.parquet")
        with pytest.raises(StateError, match=r"state of key 'ada' does not fit what 'rank' declares .*Expected `str"):
            made.import_state("rank", pa.table({"key": ["ada"], "value": [1]}))
        with pytest.raises(StateError, match=r"state of key 'ada' does not fit what 'rank' declares .*Expected `str"):
            made.import_state("rank", [("ada", 1)])
    assert plain(tmp_path, default="?").import_state("rank", names.rename_columns(["key", "value"])) == 1


@pytest.mark.parametrize("form", ["table", "parquet", "csv", "json"])
def test_a_plain_state_may_be_in_a_column_of_any_name(tmp_path, form):
    made = plain(tmp_path, default="")
    table = pa.table({"user": ["ada", "bob"], "country": ["GB", "NL"], "since": [1, 2]})
    path = tmp_path / f"customers.{form}"
    match form:
        case "parquet":
            parquet.write_table(table, path)
        case "csv":
            path.write_text("user,country,since\nada,GB,1\nbob,NL,2\n")
        case "json":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    rows = table if form == "table" else path
    assert made.import_state("rank", rows, key="user", value="country") == 2
    assert dict(stored(made).scan("rank")) == {"ada": "GB", "bob": "NL"}
    with pytest.raises(
        ConfigError, match=r"there is no column 'land' for the state; the columns are user, country, since"
    ):
        made.import_state("rank", rows, key="user", value="land")


def test_a_table_with_one_other_column_is_refused_with_how_to_name_it(tmp_path):
    with pytest.raises(StateError, match=r"\(value='country', --value country\)"):
        plain(tmp_path, default="").import_state("rank", pa.table({"key": ["ada"], "country": ["GB"]}))


def test_a_default_gives_the_type_as_far_as_possible(tmp_path):
    shares = pa.table({"key": ["ada"], "value": [0.5]})
    assert plain(tmp_path, default=0).import_state("rank", shares) == 1
    assert plain(tmp_path).import_state("rank", TABLE) == 2
    assert plain(tmp_path, default=dict).import_state("rank", TABLE) == 2


def test_the_values_of_a_reduce_are_imported_as_they_are(tmp_path):
    def latest(record: dict) -> datetime:
        return datetime.fromisoformat(record["at"])

    made = Job("latest", state=f"file://{tmp_path}/state", n_shards=4)
    keyed = made.source("in", iterable([]), type=dict).key_by("by", lambda record: record["user"])
    keyed.map("at", latest).reduce("latest", max).sink("out", collect())
    assert made.import_state("latest", [("ada", datetime(2026, 3, 1)), ("bob", "not yet")]) == 2
    assert dict(stored(made).scan("latest")) == {"ada": datetime(2026, 3, 1), "bob": "not yet"}


@pytest.mark.parametrize("form", ["pairs", "table", "csv"])
def test_a_record_state_is_imported_from_its_fields(tmp_path, form):
    rows = {"pairs": [("ada", {"balance": 7})], "table": pa.table({"key": ["ada"], "balance": [7]})}
    rows["csv"] = str(tmp_path / "accounts.csv")
    (tmp_path / "accounts.csv").write_text("key,balance\nada,7\n")
    seen: list[Account] = []
    made = plain(tmp_path, function=lambda key, record, account: (seen.append(account), account), default=Account())
    made.import_state("rank", rows[form])
    with MemoryRun(made) as run:
        run.batch({"in": [{"user": "ada"}]})
    assert seen == [Account(7)]


@pytest.mark.parametrize("value", [7, {"other": 1}, {}])
def test_a_record_that_a_state_begins_as_refuses_no_other_import(tmp_path, value):
    made = plain(tmp_path, default=Account())
    made.import_state("rank", [("ada", value)])
    assert dict(stored(made).scan("rank")) == {"ada": value}


def test_columns_that_a_record_lacks_or_has_otherwise_are_refused(job):
    with pytest.raises(
        StateError,
        match=r"of type Account, with balance: int, owner: str, and there is the column 'ballance'\. Found ballance",
    ):
        job.import_state("account", TABLE.rename_columns(["key", "ballance", "owner"]))
    with pytest.raises(
        StateError, match=r"state of key 'ada' does not fit .*Expected `str`, got `int` - at `\$.owner`"
    ):
        job.import_state("account", pa.table({"key": ["ada"], "owner": [1]}))


def test_a_damaged_file_is_reported_and_nothing_is_imported(job, tmp_path):
    table = pa.table({"key": [f"user-{n}" for n in range(50_000)], "balance": range(50_000)})
    parquet.write_table(table, tmp_path / "accounts.parquet", row_group_size=1000, compression="none")
    with open(tmp_path / "accounts.parquet", "r+b") as file:
        file.seek(400_000)
        file.write(b"\xff" * 50_000)
    with pytest.raises(ConfigError, match=r"could not read .*accounts\.parquet as Parquet"):
        job.import_state("account", tmp_path / "accounts.parquet")
    assert not (tmp_path / "state").exists()


def test_nothing_is_imported_after_the_first_batch(job):
    with MemoryRun(job) as run:
        run.batch({"in": [{"user": "ada", "amount": 5}]})
    with pytest.raises(StateError, match="has had batches up to 0"):
        job.import_state("account", TABLE)
