"""Every task reads the whole batch and keeps the records of its own keys in the order of the files."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from support.internals import shard_of, states
from tidewheel import Job, count, sum_
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.parquet_split import ParquetSplit
from tidewheel._engine import report as reports
from tidewheel._engine import wire
from tidewheel._engine.commit import SourceProgress, check_reports
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.plan import source_key
from tidewheel._engine.report import Report
from tidewheel._engine.shared_reading import Share
from tidewheel._engine.task import TaskIdentity, run_level
from tidewheel.errors import StepError, TidewheelError
from tidewheel.sinks import collect, discard

_names = itertools.count()
COLUMNS = pa.schema([("user", pa.string()), ("n", pa.int64())])
CODES = pa.dictionary(pa.int32(), pa.string())
TEXTS = st.text("abc", max_size=3)
NUMBERS = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [(pa.string(), TEXTS), (CODES, TEXTS), (pa.int64(), NUMBERS), (pa.int32(), NUMBERS)],
    ids=["text", "codes", "long", "int"],
)
@pytest.mark.parametrize("repeated", [True, False])
@given(data=st.data(), parallelism=st.integers(2, 5))
def test_each_record_is_kept_by_the_task_of_its_key_in_order(kind, keys, repeated, data, parallelism):
    listed = data.draw(st.lists(st.none() | keys, max_size=30))
    columns = pa.RecordBatch.from_arrays([pa.array(listed, kind), pa.array(range(len(listed)))], ["key", "at"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidewheel._engine.shared_reading.repeats", lambda column: repeated)
        shares = [Share("key", 16, parallelism, task) for task in range(parallelism)]
        kept = [share.of(columns).column("at").to_pylist() for share in shares]
    wanted = [0 if key is None else shard_of(key, 16) % parallelism for key in listed]
    assert kept == [[at for at, task in enumerate(wanted) if task == own] for own in range(parallelism)]
    assert [share.looked_through for share in shares] == [len(listed)] * parallelism
    assert sum(share.kept for share in shares) == len(listed)


def listed(path) -> InputFile:
    status = path.stat()
    return InputFile(str(path), status.st_size, status.st_mtime_ns // 1_000_000)


def joined(key, value, all_values):
    return value, [*(all_values or []), value]


def make_run(tmp_path, build, value=None) -> JobRun:
    job = Job(f"shared-{next(_names)}", state=f"memory:unit-shared-{next(_names)}", n_shards=8)
    build(job.source("in", lambda spark: None, type=value)).sink("out", discard())
    run = JobRun(job, job.plan())
    run.begin()
    run.local = str(tmp_path)
    return run


def reports_of(run: JobRun, parallelism: int, splits) -> list[Report]:
    spec = msgspec.structs.replace(run.spec(parallelism, run.local), shared_key="user")
    found = []
    for task in range(parallelism):
        rows = run_level(run.plan, spec, 1, TaskIdentity(task, next(_names)), iter(()), [(0, each) for each in splits])
        found += [reports.decode(payload) for payload in wire.reports_in(rows)]
    return found


def commit(run: JobRun, batch: int, parallelism: int, found: list[Report]) -> None:
    check_reports(found, {1: parallelism})
    spec = msgspec.structs.replace(run.spec(parallelism, run.local), shared_key="user")
    run.commit(spec, found, "batch", None, SourceProgress(batch))


def stored(run: JobRun, operator: str) -> dict:
    return {key: msgspec.msgpack.decode(value) for key, value in states(run.store, run.head)[operator].items()}


def write(path, rows, row_group: int):
    parquet.write_table(pa.Table.from_pylist(rows, COLUMNS), path, row_group_size=row_group)
    return path


FILES = st.lists(
    st.tuples(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=40), st.integers(1, 12), st.booleans()),
    min_size=1,
    max_size=3,
)


@settings(max_examples=25, deadline=None)
@given(batches=st.lists(st.tuples(FILES, st.integers(1, 4)), min_size=1, max_size=3))
def test_records_of_a_key_are_handled_in_the_order_of_the_files(tmp_path_factory, batches):
    tmp_path = tmp_path_factory.mktemp("shared")
    run = make_run(
        tmp_path, lambda s: s.key_by("k", "user", value="n").stateful_map("all", joined, default=lambda: None)
    )
    wanted: dict[str, list[int]] = {}
    numbers = itertools.count()
    for batch, (files, parallelism) in enumerate(batches):
        splits = []
        for users, row_group, by_groups in files:
            rows = [{"user": user, "n": next(numbers)} for user in users]
            for row in rows:
                wanted.setdefault(row["user"], []).append(row["n"])
            path = write(tmp_path / f"{next(_names)}.parquet", rows, row_group)
            groups = [(n, n + 1) for n in range(ParquetSplit.count(listed(path)))] if by_groups else [None]
            splits += [ParquetSplit(listed(path), COLUMNS, group) for group in groups]
        # An attempt that is lost, with another number of tasks, leaves no trace.
        reports_of(run, 5 - parallelism, splits)
        commit(run, batch, parallelism, reports_of(run, parallelism, splits))
    assert stored(run, "all") == wanted
    run.release()


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.key_by("k", "user").aggregate("total", n=sum_("n")),
        lambda s: s.key_by("k", "user", value="n").reduce("total", lambda a, b: a + b),
    ],
    ids=["aggregate", "reduce"],
)
def test_messages_are_combined_in_the_task_that_reads_them(tmp_path, build):
    run = make_run(tmp_path, build)
    rows = [{"user": "abc"[number % 3], "n": number} for number in range(20)]
    for batch in range(2):
        split = ParquetSplit(listed(write(tmp_path / "a.parquet", rows, 7)), COLUMNS)
        commit(run, batch, 3, reports_of(run, 3, [split]))
    wanted = {user: 2 * sum(row["n"] for row in rows if row["user"] == user) for user in "abc"}
    found = {user: total[-1] if isinstance(total, list) else total for user, total in stored(run, "total").items()}
    assert found == wanted
    run.release()


@dataclass
class Visit:
    user: str
    n: int


def of_dicts(stream):
    return stream.key_by("k", "user").stateful_map("total", lambda key, value, n: (0, n + value["n"]), default=0)


def of_dataclasses(stream):
    return stream.key_by("k", "user").stateful_map("total", lambda key, value, n: (0, n + value.n), default=0)


def with_columns_of_text(stream):
    def checked(columns):
        assert columns.column("user").type == pa.string()
        return columns

    return stream.key_by("k", "user").map_batches("check", checked).aggregate("total", n=sum_("n"))


@pytest.mark.parametrize(
    ("build", "value"),
    [
        (lambda s: s.key_by("k", "user").aggregate("total", n=sum_("n")), dict),
        (lambda s: s.key_by("k", "user").aggregate("total", users=count("user"), n=sum_("n")), dict),
        (lambda s: s.key_by("k", "user").filter(pc.field("user") != "").aggregate("total", n=sum_("n")), dict),
        (lambda s: s.key_by("k", "user", value="n").reduce("total", lambda a, b: a + b), dict),
        (of_dicts, dict),
        (of_dataclasses, Visit),
        (with_columns_of_text, dict),
    ],
    ids=["aggregate", "aggregate of the key", "filter by the key", "reduce", "dict", "dataclass", "columns"],
)
def test_keys_that_a_file_stores_as_codes_give_the_same_state(tmp_path, build, value):
    run = make_run(tmp_path, build, value)
    files = [[{"user": user, "n": number} for number, user in enumerate(users * 500)] for users in ("abc", "dacb")]
    splits = [
        ParquetSplit(listed(write(tmp_path / f"{place}.parquet", rows, 700)), COLUMNS)
        for place, rows in enumerate(files)
    ]
    for split in splits:
        read = list(split.with_codes("user").read())
        assert {batch.schema.field("user").type for batch in read} == {CODES}
        assert [row for batch in read for row in batch.to_pylist()] == [
            row for batch in split.read() for row in batch.to_pylist()
        ]
    commit(run, 0, 2, reports_of(run, 2, splits))
    wanted = {user: sum(row["n"] for rows in files for row in rows if row["user"] == user) for user in "abcd"}
    found = {user: total[-1] if isinstance(total, list) else total for user, total in stored(run, "total").items()}
    assert found == wanted
    run.release()


def test_a_column_whose_texts_hardly_repeat_is_read_as_text(tmp_path):
    rows = [{"user": f"user-{number}", "n": number} for number in range(2000)]
    split = ParquetSplit(listed(write(tmp_path / "a.parquet", rows, 2000)), COLUMNS).with_codes("user")
    assert {batch.schema.field("user").type for batch in split.read()} == {pa.string()}


def test_a_record_without_a_key_is_refused_once(tmp_path):
    run = make_run(tmp_path, lambda s: s.key_by("k", "user", value="n").stateful_map("all", joined))
    rows = [{"user": "a", "n": 1}, {"user": None, "n": 2}, {"user": "b", "n": 3}]
    found = reports_of(run, 2, [ParquetSplit(listed(write(tmp_path / "a.parquet", rows, 9)), COLUMNS)])
    assert [report.failure is not None for report in found] == [True, False]
    with pytest.raises(StepError, match="the key column 'user' is null"):
        check_reports(found, {1: 2})
    run.release()


def test_a_record_without_a_key_is_a_dead_letter_once(tmp_path):
    job = Job(f"shared-{next(_names)}", state=f"memory:unit-shared-{next(_names)}", n_shards=8)
    job.dead_letter("dead", dead := collect())
    source = job.source("in", lambda spark: None)
    source.key_by("k", "user", value="n").stateful_map("all", joined).sink("out", discard())
    assert source_key(job.plan(), pa.schema([("user", pa.string()), ("n", pa.int64())])) == "user"
    run = JobRun(job, job.plan())
    run.begin()
    run.local = str(tmp_path)
    rows = [{"user": user, "n": number} for number, user in enumerate(["a", None, "b", "c", None])]
    commit(run, 0, 3, reports_of(run, 3, [ParquetSplit(listed(write(tmp_path / "a.parquet", rows, 2)), COLUMNS)]))
    run.publish(None)
    assert sorted(letter["record"] for letter in dead.records) == ['{"user": null, "n": 1}', '{"user": null, "n": 4}']
    assert stored(run, "all") == {"a": [0], "b": [2], "c": [3]}
    run.release()


def test_tasks_that_did_not_read_the_same_commit_nothing(tmp_path):
    run = make_run(tmp_path, lambda s: s.key_by("k", "user", value="n").stateful_map("all", joined))

    def reports(users: str) -> list[Report]:
        path = write(tmp_path / "a.parquet", [{"user": user, "n": 1} for user in users], 9)
        return reports_of(run, 2, [ParquetSplit(listed(path), COLUMNS)])

    first, _ = reports("abcdef")
    _, second = reports("abc")
    with pytest.raises(TidewheelError, match="found 3 and 6 records in them"):
        check_reports([first, second], {1: 2})
    run.release()
