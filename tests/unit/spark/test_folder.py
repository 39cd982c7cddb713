"""Spark's checkpoint folder: captured after a batch and rebuilt anywhere, it lets Spark go on with the next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewheel._checkpoint.manifest import SparkLog
from tidewheel._spark.checkpoint_folder import SparkFolder, source_offsets, with_sources
from tidewheel.errors import StateError

QUERY = "6a7e2d6c-0000-4c1e-8a6e-2d9f1f5c0001"


class Spark:
    """Writes to its checkpoint folder what Spark's file source, and one with plain offsets, write."""

    def __init__(self, path: Path, sources: int, interval: int = 3) -> None:
        self.path, self.sources, self.interval = path, sources, interval
        self.seen: list[list[dict]] = [[] for _ in range(sources)]
        self.logs = [-1] * sources
        self.batch = -1

    def start(self) -> None:
        """Begin, or go on where the folder says."""
        self.path.mkdir(parents=True, exist_ok=True)
        metadata = self.path / "metadata"
        if not metadata.exists():
            metadata.write_text(json.dumps({"id": QUERY}))
        assert json.loads(metadata.read_text())["id"] == QUERY
        done = [int(file.name) for file in (self.path / "offsets").glob("[0-9]*")]
        self.batch = max(done, default=-1)
        assert sorted(int(file.name) for file in (self.path / "commits").glob("[0-9]*")) == sorted(done)
        for number in range(self.sources):
            self._load(number)

    def _load(self, number: int) -> None:
        folder = self.path / "sources" / str(number)
        logs = sorted(int(file.name.removesuffix(".compact")) for file in folder.glob("[0-9]*"))
        self.logs[number] = logs[-1] if logs else -1
        entries: dict[str, dict] = {}
        for log in logs:
            plain, compact = folder / str(log), folder / f"{log}.compact"
            for line in (plain if plain.exists() else compact).read_text().split("\n")[1:]:
                entries[json.loads(line)["path"]] = json.loads(line)
        self.seen[number] = list(entries.values())

    def run(self, files: list[list[str]]) -> None:
        """Run one batch over new files of each source; a source without any keeps its offset."""
        self.batch += 1
        for number, names in enumerate(files):
            if names:
                self.logs[number] += 1
                log = self.logs[number]
                fresh = [{"path": name, "timestamp": 1, "batchId": log} for name in names]
                self.seen[number] += fresh
                compacts = (log + 1) % self.interval == 0
                shown = self.seen[number] if compacts else fresh
                lines = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in shown]
                self._write(f"sources/{number}/{log}{'.compact' if compacts else ''}", "\n".join(["v1", *lines]))
        offsets = [json.dumps({"logOffset": log}) if log >= 0 else "-" for log in self.logs]
        self._write(f"offsets/{self.batch}", "\n".join(["v1", '{"batchWatermarkMs":0}', *offsets]))

    def commit(self) -> None:
        self._write(f"commits/{self.batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def paths(lines: list[str], number: int) -> list[str]:
    cut = (line.partition("\t") for line in lines)
    return [json.loads(entry)["path"] for source, _, entry in cut if int(source) == number]


@st.composite
def histories(draw):
    """Batches of new files for each of a few sources, and after which of them the driver is killed."""
    sources = draw(st.integers(1, 3))
    names = (f"file:///in/{number}.json" for number in range(10**6))
    odd = st.sampled_from(["", "\u2028", "\x85", ' \\"ä\t'])
    batches = []
    for _ in range(draw(st.integers(1, 8))):
        counts = draw(st.lists(st.integers(0, 2), min_size=sources, max_size=sources))
        files = [[next(names) + draw(odd) for _ in range(count)] for count in counts]
        batches.append((files, draw(st.sampled_from(["go on", "killed before the commit", "killed after it"]))))
    return sources, draw(st.integers(2, 4)), batches


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(history=histories())
def test_no_file_is_read_twice_or_left_out_whenever_the_driver_is_killed(tmp_path_factory, history):
    sources, interval, batches = history
    root, lives = tmp_path_factory.mktemp("folders"), iter(range(1000))
    log: SparkLog | None = None
    seen: list[str] = []
    expected: list[list[str]] = [[] for _ in range(sources)]

    def start() -> tuple[SparkFolder, Spark]:
        folder = SparkFolder(root / str(next(lives)))
        folder.rebuild(log, seen, sources)
        spark = Spark(folder.path, sources, interval)
        spark.start()
        return folder, spark

    folder, spark = start()
    for files, fate in batches:
        assert [[entry["path"] for entry in found] for found in spark.seen] == expected
        while True:
            spark.run(files)
            if fate == "killed before the commit":
                # Nothing was recorded: the next life runs the batch again.
                fate = "go on"
                folder, spark = start()
                continue
            log, fresh = folder.capture(spark.batch, log)
            seen = seen + fresh
            for number, names in enumerate(files):
                expected[number] = expected[number] + names
                assert paths(fresh, number) == names
            if fate == "killed after it":
                folder, spark = start()
            else:
                spark.commit()
            break


def test_a_first_start_is_an_empty_folder(tmp_path):
    folder = SparkFolder(tmp_path / "spark")
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "old").write_text("left by another life")
    folder.rebuild(None, [], 1)
    assert list((tmp_path / "spark").iterdir()) == []
    folder.remove()
    assert not (tmp_path / "spark").exists()


def test_offsets_of_the_last_two_batches_are_recorded(tmp_path):
    folder = SparkFolder(tmp_path)
    spark = Spark(tmp_path, 1)
    spark.start()
    log = None
    for number in range(4):
        spark.run([[f"f{number}"]])
        log, _ = folder.capture(spark.batch, log)
        spark.commit()
    assert sorted(log.offsets) == sorted(log.commits) == [2, 3]
    assert log.query == QUERY
    assert log.offsets[3] == folder.offsets(3)


def test_a_source_that_keeps_its_start_in_a_small_file_gets_it_back(tmp_path):
    first = SparkFolder(tmp_path / "a")
    first.rebuild(None, [], 1)
    (tmp_path / "a" / "metadata").write_text(json.dumps({"id": QUERY}))
    for name, text in {"offsets/0": 'v1\n{}\n{"topic":{"0":7}}', "sources/0/0": 'v1\n{"topic":{"0":3}}'}.items():
        file = tmp_path / "a" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    log, fresh = first.capture(0, None)
    assert fresh == []
    second = SparkFolder(tmp_path / "b")
    second.rebuild(log, fresh, 1)
    assert (tmp_path / "b" / "sources" / "0" / "0").read_text() == 'v1\n{"topic":{"0":3}}'
    assert second.offsets(0) == first.offsets(0)


def test_a_source_that_is_no_file_source_any_more_is_refused(tmp_path):
    log = SparkLog(QUERY, offsets={0: "v1\n{}\n7"}, commits={0: ""})
    line = '0\t{"path":"a","timestamp":1,"batchId":0}'
    with pytest.raises(StateError, match="source 0 was a file source and its offset now reads '7'"):
        SparkFolder(tmp_path / "x").rebuild(log, [line], 1)


def test_offsets_are_those_of_each_source():
    text = 'v1\n{"batchWatermarkMs":0}\n{"logOffset":3}\n-'
    assert source_offsets(text) == ['{"logOffset":3}', "-"]
    assert source_offsets(with_sources(text, 1)) == ['{"logOffset":3}']
    assert source_offsets(with_sources(text, 3)) == ['{"logOffset":3}', "-", "-"]
    assert with_sources(text, 2) == text
