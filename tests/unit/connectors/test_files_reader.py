"""The reader of a folder: what it lists, what a batch takes, how files are split, and what a restart knows."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from pyarrow import feather, orc, parquet

from support.dividing_files import dividing_files
from support.internals import open_store
from tidewheel import sources
from tidewheel._connectors.bad_lines import parted
from tidewheel._connectors.files.reader import FilesReader
from tidewheel.errors import ConfigError, StateError, StorageError, TidewheelError


def put(folder: Path, name: str, text: str | bytes = "x\n", at: int | None = None) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    if at is not None:
        os.utime(path, (at, at))
    return path


def opened(path, *arguments, **options) -> FilesReader:
    return sources.files(path, *arguments, **options).open()


def batch(reader: FilesReader, start: int = 0, tasks: int = 1) -> tuple[int, list[dict]]:
    """Return where the next batch ends, and its records."""
    end = reader.end(start)
    rows = []
    for split in reader.splits(start, end, tasks):
        for columns in split.read():
            records, bad = parted(columns)
            assert not bad
            rows += records.to_pylist()
    return end, rows


def values(reader: FilesReader, start: int = 0, tasks: int = 1) -> list[str]:
    return [row["value"] for row in batch(reader, start, tasks)[1]]


def test_a_file_that_two_folders_of_a_glob_contain_is_read_once(tmp_path):
    put(tmp_path, "a/day=1/one.txt", "once\n")
    reader = opened(f"{tmp_path}/{{a,a/day=*}}", "text", recursive=True)
    assert values(reader) == ["once"]


def test_files_of_a_batch_come_by_time_and_then_by_name(tmp_path):
    for name, at in (("c", 100), ("a", 300), ("b", 100), ("d", 200)):
        put(tmp_path, f"{name}.txt", name, at)
    assert values(opened(tmp_path)) == ["b", "c", "d", "a"]
    assert values(opened(tmp_path, order="name")) == ["a", "b", "c", "d"]


def test_a_file_is_read_once_however_old_it_is(tmp_path):
    put(tmp_path, "new.txt", "new")
    reader = opened(tmp_path)
    end, rows = batch(reader)
    assert (end, rows) == (1, [{"value": "new"}])
    put(tmp_path, "old.txt", "old", at=1_000)
    reader._list_at = 0
    assert values(reader, end) == ["old"]


def test_a_restarted_reader_continues_after_the_commit(tmp_path):
    put(tmp_path, "a b.txt", "a", at=100)
    put(tmp_path, "b.txt", "b", at=200)
    first = opened(tmp_path, max_files_per_trigger=1)
    assert batch(first) == (1, [{"value": "a"}])
    seen = first.seen(0, 1)
    assert [(file.number, file.modified_ms, file.size) for file in seen] == [(0, 100_000, 1)]
    again = opened(tmp_path)
    again.recall(seen)
    assert batch(again, 1) == (2, [{"value": "b"}])


def test_uncommitted_files_of_a_batch_are_taken_again(tmp_path):
    put(tmp_path, "a.txt", "a")
    reader = opened(tmp_path)
    assert batch(reader) == batch(reader) == (1, [{"value": "a"}])
    reader.committed(1)
    assert reader.end(1) == 1


def test_available_now_takes_nothing_that_comes_later(tmp_path):
    put(tmp_path, "a.txt", "a")
    reader = opened(tmp_path, max_files_per_trigger=1)
    put(tmp_path, "b.txt", "b")
    reader.freeze()
    put(tmp_path, "c.txt", "c")
    assert reader.end(reader.end(reader.end(0))) == 2


def test_hidden_and_temporary_files_are_not_read(tmp_path):
    for name in (".a.txt", "_b.txt", "c.txt.tmp", "_temporary/d.txt", "e.txt~", "f.txt.crc", "sub/g.txt"):
        put(tmp_path, name)
    put(tmp_path, "h.txt", "h")
    assert values(opened(tmp_path)) == ["h"]


def test_globs_and_recursion_choose_files(tmp_path):
    for name in ("a.txt", "sub/b.txt", "sub/deep/c.txt", "sub/d.log"):
        put(tmp_path, name, name, at=100)
    assert values(opened(tmp_path, "text", recursive=True)) == ["a.txt", "sub/b.txt", "sub/d.log", "sub/deep/c.txt"]
    assert values(opened(tmp_path, "text", recursive=True, glob="*.{log,csv}")) == ["sub/d.log"]
    assert values(opened(tmp_path / "s*" / "*.txt", "text")) == ["sub/b.txt"]
    assert values(opened(tmp_path, "text", pathGlobFilter="b*", recursiveFileLookup=True)) == ["sub/b.txt"]


def test_folders_are_columns(tmp_path):
    for day, hour in ((1, "07"), (2, "08")):
        put(tmp_path, f"day={day}/from=a%2Fb/{hour}.csv", f"u{day},{day}\n", at=day)
    reader = opened(tmp_path, schema="user string, n int")
    assert reader.schema == pa.schema(
        [("user", pa.string()), ("n", pa.int32()), ("day", pa.int32()), ("from", pa.string())]
    )
    assert batch(reader)[1] == [
        {"user": "u1", "n": 1, "day": 1, "from": "a/b"},
        {"user": "u2", "n": 2, "day": 2, "from": "a/b"},
    ]
    declared = opened(tmp_path, schema="day string, user string, n int")
    assert batch(declared)[1][0] == {"day": "1", "user": "u1", "n": 1, "from": "a/b"}
    put(tmp_path, "day=x/from=a/9.csv", "u,1\n")
    declared = opened(tmp_path, schema="day long, user string, n int")
    with pytest.raises(TidewheelError, match="'x' in the name of its folder is not a whole number"):
        batch(declared)


def test_a_partition_that_appears_later_is_read(tmp_path):
    reader = opened(tmp_path, "json", schema="user string, day int")
    put(tmp_path, "day=3/a.json", '{"user":"ada"}\n')
    assert batch(reader)[1] == [{"user": "ada", "day": 3}]


def test_a_folder_that_has_not_changed_is_not_looked_through_again(tmp_path, monkeypatch):
    put(tmp_path, "a.txt")
    os.utime(tmp_path, (100, 100))
    reader = opened(tmp_path)
    reader.end(0)
    reader._listing.files(reader._taken)
    monkeypatch.setattr(os, "listdir", None)
    assert reader._listing.files(reader._taken) == []
    monkeypatch.undo()
    put(tmp_path, "b.txt")
    assert len(reader._listing.files(reader._taken)) == 1


def test_one_listing_serves_several_batches_of_a_backlog(tmp_path, monkeypatch):
    for number in range(5):
        put(tmp_path, f"{number}.txt", str(number), at=100 + number)
    reader = opened(tmp_path, max_files_per_trigger=2)
    reader._clock = lambda: 1000.0
    assert values(reader) == ["0", "1"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", None)
        assert values(reader, 2) == ["2", "3"]
        assert reader.end(4) == 5
    put(tmp_path, "5.txt", "5", at=105)
    assert values(reader, 5) == ["5"]


def test_a_limit_of_the_run_is_in_bytes_and_a_batch_has_at_least_one_file(tmp_path):
    for number in range(5):
        put(tmp_path, f"{number}.txt", str(number) * 10, at=100 + number)
    reader = opened(tmp_path)
    reader.limit = 25
    assert (reader.end(0), reader.amount(0, 2)) == (2, 20)
    reader.limit = 1
    assert (reader.end(2), reader.amount(2, 3)) == (3, 10)


def test_a_repeated_batch_takes_the_same_files_from_the_listing(tmp_path):
    for number in range(4):
        put(tmp_path, f"{number}.txt", str(number), at=100 + number)
    reader = opened(tmp_path, max_files_per_trigger=2)
    assert values(reader) == values(reader) == ["0", "1"]
    assert values(reader, 2) == ["2", "3"]


def test_a_settling_time_leaves_out_files_that_are_being_written(tmp_path):
    put(tmp_path, "old.txt", "old", at=100)
    path = put(tmp_path, "new.txt", "new", at=int(time.time()) + 3600)
    reader = opened(tmp_path, settle="1 min")
    assert values(reader) == ["old"]
    os.utime(path, (100, 100))
    reader._list_at = 0
    assert values(reader, 1) == ["new"]


def test_a_name_that_comes_too_late_is_an_error_where_names_are_the_order(tmp_path):
    put(tmp_path, "b.txt")
    reader = opened(tmp_path, order="name")
    reader.committed(reader.end(0))
    put(tmp_path, "a.txt")
    with pytest.raises(StateError, match=r"b\.txt was read, and .*a\.txt came after it"):
        reader.end(1)


def test_a_store_is_listed_from_the_last_name_and_sometimes_completely():
    store = open_store("memory:files-by-name/in")
    store.write("b.txt", b"b")
    reader = opened("memory:files-by-name/in", "text", order="name")
    now = [1000.0]
    reader._clock = lambda: now[0]
    assert values(reader) == ["b"]
    for name in ("a.txt", "c.txt"):
        store.write(name, name[:1].encode())
    assert values(reader, 1) == ["c"]
    now[0] += 61
    with pytest.raises(StateError, match=r"c\.txt was read, and .*a\.txt came after it"):
        reader.end(2)


def test_ordered_is_accepted_with_a_warning(tmp_path):
    put(tmp_path, "b.txt", "b", at=100)
    put(tmp_path, "a.txt", "a", at=200)
    with pytest.warns(DeprecationWarning, match="not needed any more"):
        source = sources.files(tmp_path, ordered=True)
    assert values(source.open()) == ["a", "b"]


@pytest.mark.parametrize("format", ["csv", "json", "text", "parquet", "orc", "arrow"])
def test_a_large_file_is_cut_and_gives_its_records_in_order(tmp_path, format):
    table = pa.table({"value": [f"v{n}" for n in range(500)]})
    if format == "csv":
        put(tmp_path, "a.csv", "".join(f"v{n}\n" for n in range(500)))
    elif format == "json":
        put(tmp_path, "a.json", "".join(f'{{"value":"v{n}"}}\n' for n in range(500)))
    elif format == "text":
        put(tmp_path, "a.txt", "".join(f"v{n}\n" for n in range(500)))
    elif format == "parquet":
        parquet.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    elif format == "orc":
        orc.write_table(table, tmp_path / "a.orc", stripe_size=1, batch_size=50)
    else:
        feather.write_feather(table, str(tmp_path / "a.arrow"), chunksize=20)
    reader = dividing_files(sources.files(tmp_path, schema="value string")).open()
    end = reader.end(0)
    if format != "orc":
        assert len(reader.splits(0, end, 3)) == 12
    for tasks in (1, 3):
        assert values(reader, 0, tasks) == table["value"].to_pylist()


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("zst", zstandard.compress)])
def test_compressed_files_are_read(tmp_path, suffix, compress):
    put(tmp_path, f"a.json.{suffix}", compress(b'{"n":1}\n') + compress(b'{"n":2}\n'))
    assert batch(opened(tmp_path, schema="n int"))[1] == [{"n": 1}, {"n": 2}]
    put(tmp_path, f"b.json.{suffix}", compress(b'{"n":1}\n' * 100)[:-3])
    with pytest.raises(TidewheelError, match=rf"b\.json\.{suffix} cannot be read as text: Truncated"):
        batch(opened(tmp_path, schema="n int"))


def test_other_compressions_are_refused_by_name(tmp_path):
    put(tmp_path, "a.json.snappy", b"")
    with pytest.raises(ConfigError, match=r"a\.json\.snappy is compressed in a way that is not supported"):
        batch(opened(tmp_path, schema="n int"))


def test_avro_files_have_their_own_columns(tmp_path):
    import fastavro

    schema = {
        "type": "record",
        "name": "Click",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "n", "type": ["null", "int"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "by", "type": {"type": "map", "values": "long"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
            {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}},
        ],
    }
    import datetime
    from decimal import Decimal

    record = {
        "user": "ada",
        "n": None,
        "at": datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC),
        "tags": ["a"],
        "by": {"k": 1},
        "price": Decimal("1.50"),
        "inner": {"x": 1.5},
    }
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, [record, record])
    reader = opened(tmp_path)
    assert reader.schema.field("n").type == pa.int32()
    assert batch(reader)[1] == [{**record, "by": [("k", 1)]}] * 2
    data = (tmp_path / "a.avro").read_bytes()
    put(tmp_path, "a.avro", data[:-5])
    with pytest.raises(TidewheelError, match=r"a\.avro cannot be read as an Avro file"):
        batch(opened(tmp_path, schema="user string"))


def test_columns_are_found_whatever_their_case_and_types_must_fit(tmp_path):
    parquet.write_table(pa.table({"User": ["ada"], "n": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    assert batch(opened(tmp_path, schema="user string, n long, more double"))[1] == [
        {"user": "ada", "n": 1, "more": None}
    ]
    with pytest.raises(TidewheelError, match=r"a\.parquet has string in the column 'User', and the source has int64"):
        batch(opened(tmp_path, schema="user long"))


def test_csv_columns_follow_the_first_line(tmp_path):
    put(tmp_path, "a.csv", "n,User,more\n1,ada,x\n", at=100)
    put(tmp_path, "b.csv", "user,n\nbob,2\n", at=200)
    reader = opened(tmp_path, schema="user string, n int", header=True)
    assert batch(reader)[1] == [{"user": "ada", "n": 1}, {"user": "bob", "n": 2}]
    put(tmp_path, "c.csv", "name,n\nbob,2\n")
    with pytest.raises(TidewheelError, match=r"c\.csv names the columns name, n, and the source reads 'user'"):
        batch(opened(tmp_path, schema="user string, n int", header=True))


def test_a_line_of_names_is_a_record_unless_there_is_a_header(tmp_path):
    put(tmp_path, "a.csv", "User,n\nada,1\n")
    with pytest.raises(ConfigError, match="is the names of the columns"):
        sources.files(tmp_path, schema="user string, n string").check()
    reader = opened(tmp_path, schema="user string, n string")
    [split] = reader.splits(0, reader.end(0), 1)
    found = [parted(columns) for columns in split.read()]
    assert [line.line for _, bad in found for line in bad] == [1]
    assert [row for records, _ in found for row in records.to_pylist()] == [{"user": "ada", "n": "1"}]
    assert len(batch(opened(tmp_path, schema="user string, n string", header=False))[1]) == 2


def test_times_by_a_pattern(tmp_path):
    put(tmp_path, "a.csv", "01/03/2026 10:30,01.03.2026\n")
    reader = opened(
        tmp_path, schema="t timestamp_ntz, d date", timestampFormat="dd/MM/yyyy HH:mm", dateFormat="dd.MM.yyyy"
    )
    [row] = batch(reader)[1]
    assert (row["t"].isoformat(), row["d"].isoformat()) == ("2026-03-01T10:30:00", "2026-03-01")
    with pytest.raises(ConfigError, match="timestampFormat='EEE' is not supported"):
        opened(tmp_path, schema="t timestamp", timestampFormat="EEE")


def test_json_of_several_lines(tmp_path):
    put(tmp_path, "a.json", '[\n {"n": 1},\n {"n": 2}\n]\n', at=100)
    put(tmp_path, "b.json", '{"n":\n3}', at=200)
    assert batch(opened(tmp_path, schema="n int", multiLine=True))[1] == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_whole_text_is_one_record(tmp_path):
    put(tmp_path, "a.txt", "one\ntwo\n")
    assert values(opened(tmp_path, wholetext=True)) == ["one\ntwo\n"]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"mode": "DROPMALFORMED"}, "job.dead_letter"),
        ({"reader": "spark"}, "sources.dataframe"),
        ({"cleanSource": "delete"}, "Remove files yourself"),
        ({"lineSep": ";"}, "sources.dataframe"),
        ({"maxFilesPerTriger": 1}, "did you mean maxFilesPerTrigger"),
        ({"max_files_per_triger": 1}, "did you mean max_files_per_trigger"),
        ({"encoding": "latin-1"}, "read as UTF-8"),
        ({"sep": "||"}, "one ASCII character"),
        ({"wholetext": True}, "csv files have no option 'wholetext'"),
    ],
)
def test_options_that_are_not_supported_are_refused_by_name(tmp_path, option, says):
    with pytest.raises(ConfigError, match=says):
        sources.files(tmp_path, "csv", schema="a string", **option)


def test_a_file_that_changed_or_is_gone_stops_the_job(tmp_path):
    path = put(tmp_path, "a.txt", "one\n", at=100)
    reader = opened(tmp_path)
    [split] = reader.splits(0, reader.end(0), 1)
    put(tmp_path, "a.txt", "one\ntwo\n", at=100)
    with pytest.raises(StorageError, match="changed after it was listed"):
        list(split.read())
    path.unlink()
    with pytest.raises(StorageError, match="is gone"):
        list(split.read())


def test_files_of_an_object_store_are_read(tmp_path):
    store = open_store("memory:files-of-a-store")
    store.write("in/day=1/a.json", b'{"user":"ada"}\n')
    table = pa.table({"user": ["bob", "cid"]})
    parquet.write_table(table, tmp_path / "b.parquet")
    store.write("more/b.parquet", (tmp_path / "b.parquet").read_bytes())
    reader = opened("memory:files-of-a-store/in", schema="user string")
    assert batch(reader)[1] == [{"user": "ada", "day": 1}]
    assert batch(opened("memory:files-of-a-store/more"))[1] == [{"user": "bob"}, {"user": "cid"}]
