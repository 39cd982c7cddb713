"""State of the version that kept Spark's offsets in its commits continues exactly: nothing is read twice or skipped."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from support.internals import open_store
from tidewheel import Job, RunOptions, sinks, sources
from tidewheel._checkpoint.manifest import SeenFile, SparkLog, SparkSource
from tidewheel._checkpoint.spark_log import OldSeenFile, numbered, old_positions
from tidewheel.checkpoints import StreamCheckpoints
from tidewheel.errors import StateError

# The state names its files by their paths. `old_state/write.py` has written it, with that version.
ROOT = Path("/tmp/tidewheel-old-state")
STATE = Path(__file__).parent / "old_state" / "state.tar.gz"
SCHEMA = "user string, amount long"
DAY_MS = 24 * 3600 * 1000
NEWEST_MS = 100 * DAY_MS
TOTALS = {"u0": 14874, "u1": 14955, "u2": 15052}


@pytest.fixture
def old_state():
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(mode=0o700)
    for folder, files in (("in", 300), ("frame", 5)):
        (ROOT / folder).mkdir()
        for number in range(files):
            put(folder, number, number)
    with tarfile.open(STATE) as archive:
        archive.extractall(ROOT / "state", filter="data")
    yield f"file://{ROOT}/state"
    shutil.rmtree(ROOT, ignore_errors=True)


def put(folder: str, number: int, amount: int) -> None:
    record = {"user": f"u{number % 3}", "amount": amount}
    (ROOT / folder / f"{number:03}.json").write_text(json.dumps(record) + "\n")


def job(state: str, items: int = 7, files: str = "files") -> Job:
    found = Job("old", state=state, n_shards=2)
    parts = [
        found.source(files, sources.files(str(ROOT / "in"), "json", schema=SCHEMA)),
        found.source("items", sources.iterable([{"user": "u0", "amount": number} for number in range(items)])),
        found.source(
            "frame", sources.dataframe(lambda spark: spark.readStream.schema(SCHEMA).json(str(ROOT / "frame")))
        ),
    ]
    keyed = parts[0].union("all", parts[1], parts[2]).key_by("by-user", "user")
    totals = keyed.stateful_map(
        "sums",
        lambda key, row, total: ({"user": key, "total": total + row["amount"]}, total + row["amount"]),
        default=0,
    )
    totals.sink("out", sinks.discard())
    return found


def totals(found: Job) -> dict[str, int]:
    return {user: found.query("sums", user).value for user in TOTALS}


def test_old_state_continues_where_every_source_was(old_state, spark, tmp_path):
    options = RunOptions(until="caught-up", spark=spark, local=str(tmp_path))
    assert job(old_state).run(options=options).event_count == 312, "nothing is new"
    assert totals(job(old_state)) == TOTALS
    put("in", 300, 1000)
    put("frame", 5, 100)
    found = job(old_state, items=8, files="renamed")
    found.alias("renamed", "files")
    assert found.run(options=options).event_count == 315
    expected = {"u0": TOTALS["u0"] + 1000 + 7, "u1": TOTALS["u1"], "u2": TOTALS["u2"] + 100}
    assert totals(found) == expected
    newest = StreamCheckpoints(open_store(old_state), "old").latest()
    assert newest.spark is None, "Spark's log is converted"
    assert newest.source_offsets["items"] == 8
    put("in", 301, 5)
    again = job(old_state, items=8, files="renamed")
    assert again.run(options=options).event_count == 316
    assert totals(again) == {**expected, "u1": expected["u1"] + 5}


def test_old_state_of_another_source_kind_is_refused_before_the_claim(old_state, spark, tmp_path):
    found = Job("old", state=old_state, n_shards=2)
    for name in ("files", "items", "frame"):
        found.source(name, sources.rate(1)).sink(f"{name}-out", sinks.discard())
    with pytest.raises(StateError, match=r"source '\w+': it read \w+ and now reads rate, .*--allow-dropped-source"):
        found.run(until="caught-up", options=RunOptions(spark=spark, local=str(tmp_path), allow_dropped_state=["sums"]))
    assert StreamCheckpoints(open_store(old_state), "old").latest().kind != "claim"


def test_old_state_without_one_of_its_sources_is_refused_by_name(old_state, spark, tmp_path):
    with pytest.raises(StateError, match="--allow-dropped-source files"):
        job(old_state, files="other").run(until="caught-up", options=RunOptions(spark=spark, local=str(tmp_path)))


def log(kind: str, offset: str, files: dict[str, str] | None = None) -> SparkLog:
    text = f"v1\n{{}}\n{offset}\n7"
    return SparkLog(
        "q", {4: text, 5: text}, {}, files or {}, (), (SparkSource("in", kind, 3), SparkSource("", "ticks", 4)), 5
    )


@pytest.mark.parametrize(
    ("source", "old", "position"),
    [
        (sources.kafka("localhost:1", "t"), log("kafka", '{"t": {"0": 7, "1": 9}}'), {"t/0": 7, "t/1": 9}),
        (sources.kafka("localhost:1", "t"), log("kafka-log", '{"t/0": 7, "t#id": 5}'), {"t/0": 7, "t#id": 5}),
        (sources.nats("nats://localhost:1", "s"), log("nats-log", '{"s": 12}'), {"s": 12}),
        (sources.inbox("file:///in"), log("inbox", '{"0": 3, "#id": 8}'), {"0": 3, "#id": 8}),
        (sources.iterable([1]), log("iterable", '{"position": 1}'), 1),
        (sources.rate(5), log("rate", "42", {"3/0": "v1\n1700"}), {"began_ms": 1700, "seconds": 42}),
        (sources.iterable([1]), log("iterable", "-"), None),
    ],
)
def test_old_offsets_of_every_kind_become_positions(source, old, position):
    assert source.adopt(old_positions(old)["in"], []) == position


@pytest.mark.parametrize(
    ("options", "position"),
    [
        ({}, {"files": 2, "not_before_ms": NEWEST_MS - 7 * DAY_MS}),
        ({"max_age": "30 days"}, {"files": 2, "not_before_ms": NEWEST_MS - 30 * DAY_MS}),
        ({"newest_first": True}, {"files": 2, "not_before_ms": NEWEST_MS - 7 * DAY_MS}),
        ({"newest_first": True, "max_files_per_trigger": 1}, 2),
        ({"newest_first": True, "max_bytes_per_trigger": 1}, 2),
    ],
)
def test_old_files_of_an_age_that_was_remembered_are_still_read(options, position):
    """Only files older than the old version's age limit were forgotten; with newest first and a limit, none were."""
    source = sources.files("/in", "json", schema=SCHEMA, **options)
    seen = [SeenFile("in", f"file:/in/{number}", number, NEWEST_MS - number, 0) for number in range(2)]
    assert source.adopt(old_positions(log("files", '{"logOffset":3}'))["in"], seen) == position


@pytest.mark.parametrize(
    ("spark", "ours"),
    [
        ("file:/in/a%20b.json", "file:/in/a%20b.json"),
        ("s3a://bucket/in/a%20b.json", "s3://bucket/in/a b.json"),
        ("gs://bucket/in/day=1/100%25.json", "gs://bucket/in/day=1/100%.json"),
    ],
)
def test_old_files_have_the_paths_under_which_they_are_listed_now(spark, ours):
    old = old_positions(log("files", '{"logOffset":3}'))["in"]
    assert [file.path for file in numbered("in", old, [OldSeenFile(3, spark, 4, 17)])] == [ours]


def test_old_files_of_a_store_are_not_read_again():
    store = open_store("memory:old-files/in")
    store.write("a b.json", b'{"user":"ada","amount":1}\n')
    old = old_positions(log("files", '{"logOffset":3}'))["in"]
    reader = sources.files(store.url, "json", schema=SCHEMA).open()
    reader.recall(numbered("in", old, [OldSeenFile(3, f"{store.url}/a%20b.json", 4, 17)]))
    assert reader.end(1) == 1


def test_old_state_without_a_seen_file_reads_files_of_any_age():
    source = sources.files("/in", "json", schema=SCHEMA)
    assert source.adopt(old_positions(log("files", '{"logOffset":-1}'))["in"], []) == 0


def test_old_offsets_of_another_kind_are_refused():
    with pytest.raises(StateError, match="it read nats-log and now reads kafka-log"):
        sources.kafka("localhost:1", "t").adopt(old_positions(log("nats-log", '{"s": 12}'))["in"], [])
