"""Read the logs of a Spark checkpoint folder: how far a query had read its sources when it committed its last batch. Pure.

Spark writes `offsets/N` before batch N and `commits/N` after it. So the newest file of `commits` names the batch that the
state belongs to; later offsets, and files that the logs of sources list for them, are of a batch that was not committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidewheel._checkpoint.spark_log import NO_OFFSET, OldPosition, OldSeenFile
from tidewheel.errors import StateError

FILES, KAFKA = "files", "kafka"
"""The kinds of Spark's sources whose offsets have a meaning here."""
_VERSION = "v1"
_COMPACTED = ".compact"


@dataclass(frozen=True)
class SparkFolder:
    """The sources of a query as of its newest committed batch."""

    batch: int
    """The number of that batch."""
    begun: int | None
    """The number of a later batch that was begun and not committed."""
    offsets: tuple[str, ...]
    """The offset of each source."""
    seen: tuple[OldSeenFile, ...]
    """The files that sources have read; `log` is the number of the source."""

    def kind(self, source: int) -> str | None:
        """Return the kind of a source by its offset; None if it is neither files nor Kafka."""
        return _kind(self.offsets[source])

    def position(self, source: int) -> OldPosition:
        """Return the log entry of one source."""
        text = (self.offsets[source],)
        return OldPosition((self.kind(source) or "unknown",), (source,), "", self.batch, ("", ""), (text, text), {})


def newest_batches(offsets: Sequence[str], commits: Sequence[str], where: str) -> tuple[int, int | None]:
    """Return the newest committed batch and a later one that was begun, from the names of files in the folder's logs.

    >>> newest_batches(["7", "8", "9"], ["7", "8"], "folder")
    (8, 9)
    """
    done = max((int(name) for name in commits if name.isdigit()), default=None)
    if done is None:
        raise StateError(
            f"{where} has no committed batch of a Spark query: there is no file in {where}/commits. Give the folder that "
            "the query has as its checkpointLocation"
        )
    latest = max((int(name) for name in offsets if name.isdigit()), default=done)
    return done, latest if latest > done else None


def spark_folder(
    batch: int, begun: int | None, offsets: str, logs: Mapping[int, Mapping[str, str]], where: str
) -> SparkFolder:
    """Return the sources of a query from the text of `offsets/N` and, by source, the files of its log."""
    # Split like Spark: a file name may contain characters that end a line only in Python.
    version, _, *lines = offsets.removesuffix("\n").split("\n")
    if version != _VERSION:
        raise StateError(
            f"{where}/offsets/{batch} has the format {version!r}; only {_VERSION!r} can be read. Restart the Spark query with "
            "spark.sql.streaming.offsetLog.formatVersion=1 and a new checkpoint, or migrate its state alone with "
            "`tidewheel state import`"
        )
    seen: list[OldSeenFile] = []
    for number, line in enumerate(lines):
        if _kind(line) == FILES:
            seen += _seen(number, logs.get(number, {}), int(json.loads(line)["logOffset"]))
    return SparkFolder(batch, begun, tuple(lines), tuple(seen))


def _seen(source: int, log: Mapping[str, str], last: int) -> list[OldSeenFile]:
    """Return the files in a source's log up to its offset. A compacted file has the entries of all files before it."""
    compacted = [int(name.removesuffix(_COMPACTED)) for name in log if name.endswith(_COMPACTED)]
    start = max((number for number in compacted if number <= last), default=None)
    names = [] if start is None else [f"{start}{_COMPACTED}"]
    names += [str(number) for number in range(0 if start is None else start + 1, last + 1) if str(number) in log]
    found = {}
    for name in names:
        for line in log[name].removesuffix("\n").split("\n")[1:]:
            entry = json.loads(line)
            found[entry["path"]] = OldSeenFile(source, entry["path"], int(entry["batchId"]), int(entry["timestamp"]))
    return list(found.values())


def _kind(offset: str) -> str | None:
    if offset == NO_OFFSET:
        return None
    try:
        found = json.loads(offset)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    if found.keys() == {"logOffset"}:
        return FILES
    by_topic = [part for part in found.values() if isinstance(part, dict)]
    numbers = all(isinstance(offset, int) for part in by_topic for offset in part.values())
    return KAFKA if found and len(by_topic) == len(found) and numbers else None
