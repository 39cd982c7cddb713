"""Spark's checkpoint folder: captured after a batch and rebuilt anywhere, it lets Spark go on with the next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewheel._checkpoint.manifest import SparkLog, SparkSource
from tidewheel._spark.checkpoint_folder import SparkFolder, moved, source_offsets
from tidewheel._spark.source_lines import CLOCK, SourceLine, continued
from tidewheel.errors import ConfigError, CorruptError

QUERY = "6a7e2d6c-0000-4c1e-8a6e-2d9f1f5c0001"


def lines(*names: str, kind: str = "files") -> list[SourceLine]:
    """The lines of a program with these sources, each with a folder of its own; the clock is no file source."""
    return [SourceLine(name, kind if name != CLOCK else "ticks", at) for at, name in enumerate(names)]


class Spark:
    """Writes to its checkpoint folder what Spark's file source, and the clock, write."""

    def __init__(self, path: Path, names: Sequence[str], interval: int = 3) -> None:
        self.path, self.names, self.interval = path, list(names), interval
        self.seen: dict[str, list[dict]] = {name: [] for name in names}
        self.logs = dict.fromkeys(names, -1)
        self.tick = -1
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
        # Spark refuses to go on with another number of lines than it has sources.
        for batch in sorted(done):
            offsets = (self.path / "offsets" / str(batch)).read_text().split("\n")[2:]
            assert len(offsets) == len(self.names)
        for number, name in enumerate(self.names):
            if name != CLOCK:
                self._load(number, name)
                if done:
                    assert offsets[number] == (
                        json.dumps({"logOffset": self.logs[name]}) if self.logs[name] >= 0 else "-"
                    )
            elif done and offsets[number] != "-":
                self.tick = json.loads(offsets[number])["tick"]

    def _load(self, number: int, name: str) -> None:
        folder = self.path / "sources" / str(number)
        logs = sorted(int(file.name.removesuffix(".compact")) for file in folder.glob("[0-9]*"))
        self.logs[name] = logs[-1] if logs else -1
        entries: dict[str, dict] = {}
        for log in logs:
            plain, compact = folder / str(log), folder / f"{log}.compact"
            for line in (plain if plain.exists() else compact).read_text().split("\n")[1:]:
                entries[json.loads(line)["path"]] = json.loads(line)
        self.seen[name] = list(entries.values())

    def paths(self) -> dict[str, list[str]]:
        return {name: [entry["path"] for entry in seen] for name, seen in self.seen.items() if name != CLOCK}

    def run(self, files: dict[str, list[str]]) -> None:
        """Run one batch over new files of each source; a source without any keeps its offset."""
        self.batch += 1
        self.tick += 1
        for number, name in enumerate(self.names):
            if files.get(name):
                self.logs[name] += 1
                log = self.logs[name]
                fresh = [{"path": path, "timestamp": 1, "batchId": log} for path in files[name]]
                self.seen[name] += fresh
                compacts = (log + 1) % self.interval == 0
                shown = self.seen[name] if compacts else fresh
                entries = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in shown]
                self._write(f"sources/{number}/{log}{'.compact' if compacts else ''}", "\n".join(["v1", *entries]))
        offsets = [
            json.dumps({"tick": self.tick}) if name == CLOCK else (json.dumps({"logOffset": log}) if log >= 0 else "-")
            for name, log in self.logs.items()
        ]
        self._write(f"offsets/{self.batch}", "\n".join(["v1", '{"batchWatermarkMs":0}', *offsets]))

    def commit(self) -> None:
        self._write(f"commits/{self.batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@st.composite
def histories(draw):
    """Programs, each with the batches of its life: new files by source, and after which of them the driver is killed.

    From life to life sources come, go, come back as new ones, and change their order; the clock is among them or not.
    """
    numbered = (f"file:///in/{number}.json" for number in range(10**6))
    odd = st.sampled_from(["", "\u2028", "\x85", ' \\"ä\t'])
    lives = []
    for _ in range(draw(st.integers(1, 5))):
        names = draw(st.lists(st.sampled_from(["a", "b", "c", CLOCK]), min_size=1, max_size=4, unique=True))
        batches = []
        for _ in range(draw(st.integers(0, 4))):
            files = {
                name: [next(numbered) + draw(odd) for _ in range(draw(st.integers(0, 2)))] for name in names if name
            }
            batches.append((files, draw(st.sampled_from(["go on", "killed before the commit", "killed after it"]))))
        lives.append((names, batches))
    return draw(st.integers(2, 4)), lives


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(history=histories())
def test_no_file_is_read_twice_or_left_out_whatever_the_program_becomes_and_whenever_it_is_killed(
    tmp_path_factory, history
):
    interval, lives = history
    root, starts = tmp_path_factory.mktemp("folders"), iter(range(1000))
    log: SparkLog | None = None
    seen: list[str] = []
    expected: dict[str, list[str]] = {}

    def start(names: list[str]) -> tuple[SparkFolder, Spark]:
        folder = SparkFolder(root / str(next(starts)))
        gone = {"a", "b", "c"} - set(names)
        folder.rebuild(log, seen, continued(log, lines(*names), {}, allow_dropped_source=gone))
        spark = Spark(folder.path, names, interval)
        spark.start()
        assert spark.paths() == {name: expected.get(name, []) for name in names if name != CLOCK}
        return folder, spark

    for names, batches in lives:
        folder, spark = start(names)
        for files, fate in batches:
            spark.run(files)
            if fate == "killed before the commit":
                # Nothing was recorded: the next life runs the batch again.
                folder, spark = start(names)
                spark.run(files)
            log, fresh = folder.capture(spark.batch, log)
            seen = seen + fresh
            # A source that this program lacks is forgotten; should it come back, it is new.
            expected = {name: expected.get(name, []) + files[name] for name in names if name != CLOCK}
            if fate == "killed after it":
                folder, spark = start(names)
            else:
                spark.commit()


def test_a_first_start_is_an_empty_folder(tmp_path):
    folder = SparkFolder(tmp_path / "spark")
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "old").write_text("left by another life")
    folder.rebuild(None, [], continued(None, lines("in"), {}))
    assert list((tmp_path / "spark").iterdir()) == []
    folder.remove()
    assert not (tmp_path / "spark").exists()


def test_offsets_of_the_last_two_batches_are_recorded(tmp_path):
    folder = SparkFolder(tmp_path)
    folder.rebuild(None, [], continued(None, lines("in"), {}))
    spark = Spark(tmp_path, ["in"])
    spark.start()
    log = None
    for number in range(4):
        spark.run({"in": [f"f{number}"]})
        log, _ = folder.capture(spark.batch, log)
        spark.commit()
    assert sorted(log.offsets) == sorted(log.commits) == [2, 3]
    assert log.query == QUERY
    assert log.offsets[3] == folder.offsets(3)
    assert log.sources == (SparkSource("in", "files", 0),)


def test_a_source_that_keeps_its_start_in_a_small_file_gets_it_back_at_its_new_place(tmp_path):
    first = SparkFolder(tmp_path / "a")
    first.rebuild(None, [], continued(None, lines("in", kind="kafka"), {}))
    (tmp_path / "a" / "metadata").write_text(json.dumps({"id": QUERY}))
    for name, text in {"offsets/0": 'v1\n{}\n{"topic":{"0":7}}', "sources/0/0": 'v1\n{"topic":{"0":3}}'}.items():
        file = tmp_path / "a" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    log, fresh = first.capture(0, None)
    assert fresh == []
    second = SparkFolder(tmp_path / "b")
    second.rebuild(log, fresh, continued(log, lines("other", "in", kind="kafka"), {}))
    assert not (tmp_path / "b" / "sources" / "0").exists()
    assert (tmp_path / "b" / "sources" / "1" / "0").read_text() == 'v1\n{"topic":{"0":3}}'
    assert source_offsets(second.offsets(0)) == ["-", '{"topic":{"0":7}}']


def test_files_that_were_seen_without_an_offset_are_refused(tmp_path):
    log = SparkLog(QUERY, {0: "v1\n{}\n-"}, {0: ""}, sources=(SparkSource("in", "files", 0),), logs=1)
    with pytest.raises(
        CorruptError, match="log 0 has files that a source has seen, and the offset of that source is '-'"
    ):
        SparkFolder(tmp_path / "x").rebuild(
            log, ['0\t{"path":"a","timestamp":1,"batchId":0}'], continued(log, lines("in"), {})
        )


def test_offsets_are_those_of_each_line():
    text = 'v1\n{"batchWatermarkMs":0}\n{"logOffset":3}\n-'
    assert source_offsets(text) == ['{"logOffset":3}', "-"]
    assert source_offsets(moved(text, (None, 0))) == ["-", '{"logOffset":3}']
    assert moved(text, (0, 1)) == text


def test_offsets_in_another_format_are_refused_with_the_setting():
    with pytest.raises(ConfigError, match=r"format v2.*offsetLog.formatVersion to 1"):
        source_offsets("v2\n{}\n7")
