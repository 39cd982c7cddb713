"""The folder that a files sink writes to: what is staged in it, what is in place, and up to which sequence.

    <path>/<job>~<sink>~<sequence>~<task>-<number>.parquet     output, for everybody to read
    <path>/_tidewheel/<job>~<sink>/staged/                     what tasks have written and nobody published yet
    <path>/_tidewheel/<job>~<sink>/published-<sequence>        the marker: the highest sequence that is in place

Readers such as Spark and Arrow ignore names that begin with `_`. A name of an output file is made of what was committed,
so publishing a sequence again makes the same files, and no two sequences, sinks or jobs share one: `~` is in none of
their names. The marker is a file per number, of which the highest counts: whoever comes late with a
lower one cannot set it back. None of it needs more of a store than to create, list, copy and delete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tidewheel.checkpoint.names import folder as folder_name
from tidewheel.errors import CorruptError, StateError, StorageError

HIDDEN = "_tidewheel"
_MARKER = re.compile(r"published-(\d{20})")
_STAGED = re.compile(r"(\d{20})-.*")

_ADVICE = {
    errno.ENOSPC: "the disk is full: make room and start again",
    errno.EDQUOT: "the disk quota is used up: make room and start again",
    errno.EACCES: "this user may not: change the owner or the mode",
    errno.EPERM: "this user may not: change the owner or the mode",
    errno.EROFS: "the file system is mounted read-only",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EEXIST: "there is a file of that name",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


class OutputFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that a task has written: where it is staged, where it belongs, and what it must hold."""

    staged: str
    """Its name in the staging folder."""
    final: str
    """Its path below the target folder."""
    size: int
    checksum: int
    rows: int


class TargetFolder:
    """One sink's view of the folder that it writes to."""

    def __init__(self, path: str, job: str, sink: str) -> None:
        """Take the folder's absolute path; nothing is made or read yet."""
        self.path = Path(path)
        self.prefix = f"{folder_name(job)}~{folder_name(sink)}"
        self.own = self.path / HIDDEN / self.prefix
        self.staging = self.own / "staged"

    def name(self, sequence: int, task: str, number: int, suffix: str) -> str:
        """Return the name of an output file: the same for the same committed work."""
        return f"{self.prefix}~{sequence:020}~{task}-{number}.{suffix}"

    def create_staged(self, sequence: int, attempt: str, number: int, suffix: str) -> tuple[int, str]:
        """Create a file in the staging folder; return it, open, and its name."""
        name = f"{sequence:020}-{attempt}-{number}.{suffix}"
        with explained("write", self.staging / name):
            make_folder(self.staging)
            return os.open(self.staging / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), name

    def sync_staged(self) -> None:
        """Bring the names of the staged files to the disk."""
        with explained("write", self.staging):
            sync_folder(self.staging)

    def has_staged(self, file: OutputFile) -> bool:
        """Tell whether the file is still where the task left it."""
        return (self.staging / file.staged).exists()

    def place(self, file: OutputFile, sequence: int) -> None:
        """Move a staged file to where it belongs; that it is there already is fine."""
        source, target = self.staging / file.staged, self.path / file.final
        with explained("publish", target):
            try:
                found = source.stat().st_size
                if found != file.size:
                    raise CorruptError(
                        f"{source} is not what the task wrote: {file.size} bytes were staged, {found} are there. "
                        "It was not published; put the right file back and start again"
                    )
                make_folder(target.parent)
                os.rename(source, target)
            except FileNotFoundError as error:
                # Both gone and a marker that has passed: another run published it, and a reader has taken it since.
                if target.exists() or self.marker() >= sequence:
                    return
                raise StorageError(
                    f"output is lost: neither {target} nor the staged file {source} is there. If a reader took it away as soon "
                    "as it was published, put an empty file of that name in its place, start again, and remove it"
                ) from error

    def sync(self, files: Iterable[OutputFile]) -> None:
        """Bring the names of placed files to the disk."""
        for parent in {(self.path / file.final).parent for file in files}:
            # A reader may have taken away the whole folder of a partition.
            with explained("write", parent), contextlib.suppress(FileNotFoundError):
                sync_folder(parent)

    def marker(self) -> int:
        """Return the highest sequence that is in place, 0 if there is none."""
        return max((number for number, _ in _numbered(self.own, _MARKER)), default=0)

    def mark(self, sequence: int) -> None:
        """Say that all output up to this sequence is in place."""
        # Not synced: a marker lost with the power makes the newest sequence be published again, which finds it in place.
        path = self.own / f"published-{sequence:020}"
        with explained("write", path):
            path.touch()
            for number, name in _numbered(self.own, _MARKER):
                if number < sequence:
                    (self.own / name).unlink(missing_ok=True)

    def clean(self, sequence: int) -> None:
        """Remove what failed attempts left in the staging folder up to this sequence, all of whose output is in place."""
        for number, name in _numbered(self.staging, _STAGED):
            if number <= sequence:
                with explained("remove", self.staging / name):
                    (self.staging / name).unlink(missing_ok=True)

    def retract(self, after: int, before: int) -> list[Path]:
        """Remove this sink's output of the sequences above `after` and below `before`; return what was removed."""
        output = re.compile(rf"{re.escape(self.prefix)}~(\d{{20}})~.*")
        removed = []
        for parent, folders, names in os.walk(self.path):
            folders[:] = [name for name in folders if name != HIDDEN]
            for name in names:
                match = output.fullmatch(name)
                if match and after < int(match[1]) < before:
                    path = Path(parent, name)
                    with explained("remove", path):
                        path.unlink(missing_ok=True)
                    removed.append(path)
        for parent_path in {path.parent for path in removed}:
            sync_folder(parent_path)
        return sorted(removed)

    def refuse_other_life(self, files: Iterable[OutputFile], sequence: int, marker: int) -> None:
        """Refuse output that was never published though the marker has passed its sequence.

        A run that was overtaken finds its files published. Where they still wait, the job's state is a new one, and
        the folder has the output of an earlier life.
        """
        if any(self.has_staged(file) for file in files):
            raise StateError(
                f"{self.path} has output of this job up to sequence {marker}, and the job's state is only at {sequence}: the "
                f"state was started anew, and the output belongs to the one before. Remove that output ({self.prefix}~*) and "
                f"{self.own}/published-*, keep {self.staging}, and start again"
            )


def _numbered(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    with explained("read", folder), contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if match := pattern.fullmatch(name):
                yield int(match[1]), name


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, each durable, where they are not there."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(verb: str, path: Path) -> Iterator[None]:
    """Turn an error of the disk into one that says what, where, and what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk and the path")
        raise StorageError(
            f"could not {verb} {path}: {error.strerror or error}; {advice}. Nothing committed is lost"
        ) from error
