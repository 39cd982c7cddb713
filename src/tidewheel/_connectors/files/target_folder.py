"""The folder of a files sink, local or in a store: its staged files, its published files and its marker.

    <path>/<job>~<sink>~<sequence>~<task>-<number>.parquet     published output
    <path>/_tidewheel/<job>~<sink>/staged/                     files that tasks wrote and that are not published yet
    <path>/_tidewheel/<job>~<sink>/published-<sequence>        the marker: the highest published sequence
    <path>/_tidewheel/<job>~<sink>/held-…, merged-…, merging/  commits that are merged before publication (`held_output.py`)
    <path>/_tidewheel/<fleet>=2Fover~<sink>/published-<run>    the last finished run of a fleet whose marker was deleted

Readers such as Spark and Arrow ignore names that begin with `_`. The name of an output file follows from the commit, so
publishing a sequence again creates the same files. Different sequences, sinks and jobs never share a file, because their
names contain no `~`. Each marker is a separate file and the highest one counts, so a late writer cannot lower it. A reader
that needs complete batches reads the files up to the marker (`whole_files`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

import msgspec

from tidewheel._checkpoint.names import folder as folder_name
from tidewheel._checkpoint.names import stream_of
from tidewheel._connectors.files.formats import CheckedFile
from tidewheel._connectors.files.places import LocalFolder, Place
from tidewheel._connectors.other_state import job_of, other_state
from tidewheel._connectors.over_runs import is_over, over_stream_of
from tidewheel.errors import CorruptError, NotFound, StateError, StorageError

HIDDEN = "_tidewheel"
_MARKER = re.compile(r"published-(\d{20})")
_STAGED = re.compile(r"(\d{20})-.*")
_OUTPUT = re.compile(r"(?:.*/)?([^/~]+~[^/~]+)~(\d{20})~[^/]*")


class OutputFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that a task has written: its staged path, its final path, and the expected content."""

    staged: str
    """The name in the staging folder."""
    final: str
    """The path below the target folder."""
    size: int
    checksum: int
    rows: int


class TargetFolder:
    """The output folder of one sink."""

    def __init__(self, place: Place, stream: str, sink: str) -> None:
        self.place, self.stream, self.job, self.sink = place, stream, job_of(stream), sink
        self.prefix = f"{folder_name(stream)}~{folder_name(sink)}"
        self.own = f"{HIDDEN}/{self.prefix}"
        self.staging = f"{self.own}/staged"

    def name(self, sequence: int, task: str, number: int, suffix: str) -> str:
        """Return the name of an output file: the same for the same committed work."""
        return f"{self.prefix}~{sequence:020}~{task}-{number}.{suffix}"

    def checked(self, file: OutputFile, sequence: int) -> OutputFile:
        """Return the file of a token. Refuse a token that moves anything but a staged file of this sequence and sink.

        Tokens are in the state store. Write access to the state store must not give access to other files.
        """
        *parts, name = file.final.split("/")
        own = name.startswith(f"{self.prefix}~{sequence:020}~") and file.staged.startswith(f"{sequence:020}-")
        plain = all("=" in part for part in parts) and "/" not in file.staged
        if not own or not plain or "\0" in file.final + file.staged:
            raise CorruptError(
                f"a token of the commit {sequence} moves {file.staged!r} to {file.final!r}, which the sink {self.prefix} never "
                "does; something else has written to the state store. Nothing was published: restore an earlier checkpoint"
            )
        return file

    def create_staged(self, sequence: int, attempt: str, number: int, suffix: str) -> tuple[CheckedFile, str]:
        """Create a file in the staging folder; return the open file and its name."""
        name = f"{sequence:020}-{attempt}-{number}.{suffix}"
        return self.place.begin(f"{self.staging}/{name}"), name

    def sync_staged(self) -> None:
        """Make the staged files durable."""
        self.place.sync([self.staging])

    def place_all(self, files: Iterable[OutputFile], sequence: int) -> Iterator[OutputFile]:
        """Move staged files to their final paths, one after the other. Files that were moved before are skipped."""
        staged = self.place.sizes(self.staging)
        for file in files:
            self._place(file, sequence, staged.get(file.staged))
            yield file

    def _place(self, file: OutputFile, sequence: int, size: int | None) -> None:
        source = f"{self.staging}/{file.staged}"
        try:
            if size is None:
                raise NotFound(f"there is no {self.place.at(source)}")
            if size != file.size:
                raise CorruptError(
                    f"{self.place.at(source)} is not what the task wrote: {file.size} bytes were staged, {size} are there. "
                    "It was not published; put the right file back and start again"
                )
            self.place.move(source, file.final)
        except NotFound as error:
            # If the marker has passed the sequence, another run published the file and a reader removed it since.
            if self.place.has(file.final) or self.marker() >= sequence:
                return
            raise self.lost(file.final, source) from error

    def lost(self, final: str, source: str) -> StorageError:
        """Return the error for output that is neither published nor staged."""
        return StorageError(
            f"output is lost: neither {self.place.at(final)} nor the staged file {self.place.at(source)} is there. If a "
            "reader took it away as soon as it was published, put an empty file of that name in its place, start again, and "
            "remove it"
        )

    def sync(self, files: Iterable[OutputFile]) -> None:
        """Make placed files durable."""
        self.place.sync({file.final.rpartition("/")[0] for file in files})

    def marker(self) -> int:
        """Return the highest published sequence, 0 if there is none."""
        return max((number for number, _ in self.numbered(self.own, _MARKER)), default=0)

    def newest(self) -> int:
        """Return the highest sequence that has published output, 0 if there is none.

        In an object store only the marker counts, because listing takes a request for each thousand files.
        """
        if not isinstance(self.place, LocalFolder):
            return self.marker()
        placed = (number for _, whose, number in _outputs(self.place) if whose == (self.stream, self.sink))
        return max(self.marker(), max(placed, default=0))

    def mark(self, sequence: int) -> None:
        """Record that all output up to this sequence is published."""
        self.place.touch(f"{self.own}/published-{sequence:020}")
        for number, path in self.numbered(self.own, _MARKER):
            if number < sequence:
                self.place.remove(path)

    def clean(self, sequence: int) -> None:
        """Remove the staged files of failed attempts up to this sequence, whose output is published completely."""
        for number, path in self.numbered(self.staging, _STAGED):
            if number <= sequence:
                self.place.remove(path)

    def retract(self, after: int, before: int) -> tuple[int, list[int]]:
        """Remove the output of the sequences above `after` and below `before`; return the number of files, and the sequences."""
        void = sorted(
            (path, sequence)
            for path, whose, sequence in _outputs(self.place)
            if whose == (self.stream, self.sink) and after < sequence < before
        )
        # A paused run that was replaced must find nothing to publish when it wakes up.
        staged = [path for number, path in self.numbered(self.staging, _STAGED) if after < number < before]
        for path in (*staged, *(path for path, _ in void)):
            self.place.remove(path)
        self.place.sync({path.rpartition("/")[0] for path, _ in void})
        # After a backup was restored, new commits reuse the removed sequences, so a marker must not be above them.
        for number, path in self.numbered(self.own, _MARKER):
            if after < number < before:
                self.place.touch(f"{self.own}/published-{after:020}")
                self.place.remove(path)
        return len(void), sorted({sequence for _, sequence in void})

    def outputs(self) -> list[str]:
        """Return the paths of this sink's output files."""
        return sorted(path for path, whose, _ in _outputs(self.place) if whose == (self.stream, self.sink))

    def format(self) -> str | None:
        """Return the format of the existing output of this job and sink, in a fleet of any run; None if there is none.

        This lists the folder up to the first output file.
        """
        # In a fleet, a run without output of its own uses the format of the other runs.
        if self.job == self.stream and not self.marker():
            return None
        return next(
            (
                path.rpartition(".")[2]
                for path, (stream, sink), _ in _outputs(self.place)
                if job_of(stream) == self.job and sink == self.sink
            ),
            None,
        )

    def remove(self) -> None:
        """Remove all files of this sink. The marker goes last, so that a reset job is warned of the old output until then."""
        staged = [f"{self.staging}/{name}" for name in self.place.sizes(self.staging)]
        markers = [path for _, path in self.numbered(self.own, _MARKER)]
        paths = [*self.outputs(), *staged, *markers]
        for path in paths:
            self.place.remove(path)
        self.place.sync({path.rpartition("/")[0] for path in paths})

    def refuse_other_life(self, files: Iterable[OutputFile], sequence: int, marker: int) -> None:
        """Refuse output that was never published although the marker has passed its sequence.

        If another run took over, it has published the files. Files that are still staged belong to a job with new state,
        and the folder has the output of the job's earlier state.
        """
        waiting = self.place.sizes(self.staging)
        if any(file.staged in waiting for file in files):
            raise StateError(
                f"{self.place.at('')} has output of job {self.stream!r} up to sequence {marker}, and the job's state is only at "
                f"{sequence}: {other_state(self.stream)}"
            )

    def numbered(self, folder: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
        """Yield the number and the path of each file in a folder whose name matches."""
        for name in self.place.sizes(folder):
            if match := pattern.fullmatch(name):
                yield int(match[1]), f"{folder}/{name}"


def whole(place: Place) -> list[str]:
    """Return the paths of all output files of completely published batches."""
    outputs = list(_outputs(place))
    markers = {whose: _whole_up_to(place, *whose) for whose in {whose for _, whose, _ in outputs}}
    return sorted(path for path, whose, sequence in outputs if sequence <= markers[whose])


def over_number(place: Place, stream: str, sink: str) -> int:
    """Return the number of the last finished run in the fleet of a stream; 0 if there is none, or no fleet."""
    over = over_stream_of(stream)
    return 0 if over is None else TargetFolder(place, over, sink).marker()


def _whole_up_to(place: Place, stream: str, sink: str) -> float:
    """Return the sequence up to which the output of a job and sink is published; infinity for a finished run."""
    # Read the marker first: it is deleted after the run was recorded as finished.
    marker = TargetFolder(place, stream, sink).marker()
    return math.inf if not marker and is_over(stream, over_number(place, stream, sink)) else marker


def _outputs(place: Place) -> Iterator[tuple[str, tuple[str, str], int]]:
    """Yield every output file: its path, its stream and sink, and its sequence."""
    for path in place.walk(HIDDEN):
        if match := _OUTPUT.fullmatch(path):
            stream, sink = (stream_of(part) for part in match[1].split("~"))
            if stream is not None and sink is not None:
                yield path, (stream, sink), int(match[2])
