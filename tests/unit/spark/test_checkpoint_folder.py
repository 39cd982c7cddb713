"""The checkpoint folder of a DataFrame's query is captured after a batch and rebuilt anywhere; Spark continues from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewheel._checkpoint.manifest import SeenFile
from tidewheel._connectors.spark.frame_position import FramePosition
from tidewheel._spark.checkpoint_folder import CheckpointFolder, Stream, offset_lines
from tidewheel.errors import ConfigError, CorruptError, StateError

QUERY = "6a7e2d6c-0000-4c1e-8a6e-2d9f1f5c0001"
STREAMS = (Stream("files", 0), Stream("kafka", 1), Stream("files", 2))


class Spark:
    """Writes to its checkpoint folder what Spark writes for two file sources and a Kafka source."""

    def __init__(self, path: Path, interval: int = 3) -> None:
        self.path, self.interval = path, interval
        self.seen: dict[int, list[dict]] = {0: [], 2: []}
        self.logs = {0: -1, 2: -1}
        metadata = self.path / "metadata"
        if not metadata.exists():
            metadata.write_text(json.dumps({"id": QUERY}))
            self._write("sources/1/0", "v1\nstart")
        assert json.loads(metadata.read_text())["id"] == QUERY
        assert (self.path / "sources/1/0").read_text() == "v1\nstart"
        done = sorted(int(file.name) for file in (self.path / "offsets").glob("[0-9]*"))
        assert sorted(int(file.name) for file in (self.path / "commits").glob("[0-9]*")) == done
        self.batch = max(done, default=-1)
        assert self.batch < 1 or done == [self.batch - 1, self.batch]
        for folder in self.seen:
            self._load(folder)

    def _load(self, folder: int) -> None:
        place = self.path / "sources" / str(folder)
        logs = sorted(int(file.name.removesuffix(".compact")) for file in place.glob("[0-9]*"))
        self.logs[folder] = logs[-1] if logs else -1
        entries: dict[str, dict] = {}
        for log in logs:
            plain, compact = place / str(log), place / f"{log}.compact"
            for line in (plain if plain.exists() else compact).read_text().split("\n")[1:]:
                entries[json.loads(line)["path"]] = json.loads(line)
        self.seen[folder] = list(entries.values())

    def paths(self) -> dict[int, list[str]]:
        return {folder: [entry["path"] for entry in seen] for folder, seen in self.seen.items()}

    def run(self, files: dict[int, list[str]]) -> None:
        self.batch += 1
        for folder, paths in files.items():
            if not paths:
                continue
            self.logs[folder] += 1
            log = self.logs[folder]
            fresh = [{"path": path, "timestamp": 1, "batchId": log} for path in paths]
            self.seen[folder] += fresh
            compacts = (log + 1) % self.interval == 0
            shown = self.seen[folder] if compacts else fresh
            entries = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in shown]
            self._write(f"sources/{folder}/{log}{'.compact' if compacts else ''}", "\n".join(["v1", *entries]))
        first, last = (json.dumps({"logOffset": log}) if log >= 0 else "-" for log in self.logs.values())
        self._write(f"offsets/{self.batch}", "\n".join(["v1", '{"batchWatermarkMs":0}', first, "{}", last]))

    def commit(self) -> None:
        self._write(f"commits/{self.batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


_odd = st.sampled_from(["", "\u2028", "\x85", ' \\"ä\t', ":"])
_fates = st.sampled_from(["go on", "killed before the commit", "killed after it"])
_batches = st.lists(st.tuples(st.lists(_odd, max_size=2), st.lists(_odd, max_size=2), _fates), min_size=1, max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(interval=st.integers(2, 4), batches=_batches)
def test_no_file_is_read_twice_or_left_out_whenever_the_driver_is_killed(tmp_path_factory, interval, batches):
    root, starts = tmp_path_factory.mktemp("folders"), iter(range(1000))
    position: FramePosition | None = None
    seen: list[SeenFile] = []
    expected: dict[int, list[str]] = {0: [], 2: []}
    numbers = iter(range(10**6))

    def start() -> tuple[CheckpointFolder, Spark]:
        folder = CheckpointFolder(root / str(next(starts)), "in", STREAMS)
        # The manifest has the position as plain values.
        folder.rebuild(None if position is None else FramePosition.of(position.recorded()), seen)
        spark = Spark(folder.path, interval)
        assert spark.paths() == expected
        return folder, spark

    folder, spark = start()
    for first, last, fate in batches:
        files = {
            number: [f"file:///in/{next(numbers)}{odd}" for odd in odds] for number, odds in ((0, first), (2, last))
        }
        spark.run(files)
        if fate == "killed before the commit":
            folder, spark = start()  # Nothing was recorded: the batch runs again.
            spark.run(files)
        position = folder.captured(spark.batch)
        seen = seen + folder.seen(position)
        expected = {number: expected[number] + files[number] for number in expected}
        if fate == "killed after it":
            folder, spark = start()
        else:
            spark.commit()


def position(**changes) -> FramePosition:
    text = "v1\n{}\n-\n{}\n-"
    given = {
        "query": QUERY,
        "batch": 0,
        "kinds": ["files", "kafka", "files"],
        "before": "",
        "offsets": text,
        "files": {},
    }
    return FramePosition(**{**given, **changes})


def test_a_first_start_is_an_empty_folder(tmp_path):
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "old").write_text("left by another life")
    folder = CheckpointFolder(tmp_path / "spark", "in", STREAMS)
    folder.rebuild(None, [])
    assert list((tmp_path / "spark").iterdir()) == []
    folder.remove()
    assert not (tmp_path / "spark").exists()


def test_files_that_were_seen_without_an_offset_are_refused(tmp_path):
    folder = CheckpointFolder(tmp_path / "x", "in", STREAMS)
    with pytest.raises(CorruptError, match="'in' has seen files, and no offset"):
        folder.rebuild(position(), [SeenFile("in", "0:file:///a", 0, 1, 0)])


def test_a_dataframe_that_reads_other_streams_is_refused(tmp_path):
    folder = CheckpointFolder(tmp_path / "x", "in", STREAMS[:1])
    with pytest.raises(StateError, match=r"'in' read 3 streams \(files, kafka, files\) and now reads files"):
        folder.rebuild(position(), [])


def test_offsets_in_another_format_are_refused_with_the_setting():
    with pytest.raises(ConfigError, match=r"format v2.*offsetLog.formatVersion to 1"):
        offset_lines("v2\n{}\n7")
