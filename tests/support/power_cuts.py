"""What a power cut may leave: a trace of the system calls of this process, and the folders that a disk may hold after each.

Data that was not synced may be lost, and so may the name of a file whose folder was not synced; names of a folder may be lost
in any order. A rename is one step. That is what POSIX promises, and less than journaling file systems give.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidewheel._connectors.files.formats import CheckedFile


@dataclass(frozen=True)
class Step:
    """One system call. `path` is below the traced folder; `file` is the number of a file's content."""

    call: str
    path: str = ""
    to: str = ""
    file: int = 0
    at: int = 0
    data: bytes = b""


@dataclass
class Trace:
    """The steps so far. `marks` has what was acknowledged, with the number of steps before it."""

    root: str
    steps: list[Step] = field(default_factory=list)
    marks: list[tuple[int, Any]] = field(default_factory=list)

    def acknowledge(self, what: Any) -> None:
        self.marks.append((len(self.steps), what))

    def acknowledged(self, count: int) -> Any:
        """Return what was last acknowledged within so many steps, or None."""
        return next((what for at, what in reversed(self.marks) if at <= count), None)

    def write(self, count: int, keeps: Callable[[], bool], root: Path) -> None:
        """Write what the disk holds after so many steps; `keeps` decides about each step that was not synced."""
        steps = self.steps[:count]
        durable = _durable(steps)
        names: dict[str, int | None] = {"": None}
        contents: dict[int, bytearray] = {}
        for number, step in enumerate(steps):
            if step.call in ("fsync", "fsync folder") or not (number in durable or keeps()):
                continue
            _apply(step, names, contents)
        for path, file in sorted(names.items()):
            target = root / path if path else root
            if file is None:
                target.mkdir(exist_ok=True)
            else:
                target.write_bytes(contents.get(file, b""))


def _durable(steps: list[Step]) -> set[int]:
    """Return the numbers of the steps that are certainly on the disk."""
    durable: set[int] = set()
    waiting: dict[object, list[int]] = {}
    for number, step in enumerate(steps):
        if step.call == "fsync":
            durable.update(waiting.pop(step.file, ()))
        elif step.call == "fsync folder":
            durable.update(waiting.pop(step.path, ()))
        elif step.call in ("write", "truncate"):
            waiting.setdefault(step.file, []).append(number)
        else:
            for path in filter(None, (step.path, step.to)):
                waiting.setdefault(os.path.dirname(path), []).append(number)
    return durable


def _apply(step: Step, names: dict[str, int | None], contents: dict[int, bytearray]) -> None:
    if step.call == "write":
        content = contents.setdefault(step.file, bytearray())
        content.extend(bytes(max(0, step.at - len(content))))
        content[step.at : step.at + len(step.data)] = step.data
    elif step.call == "truncate":
        content = contents.setdefault(step.file, bytearray())
        content.extend(bytes(max(0, step.at - len(content))))
        del content[step.at :]
    elif step.call == "unlink":
        if names.get(step.path, 0) is not None:
            names.pop(step.path, None)
    elif step.call == "rmdir":
        if not any(path.startswith(f"{step.path}/") for path in names):
            names.pop(step.path, None)
    elif step.call == "rename":
        if step.path in names and os.path.dirname(step.to) in names:
            names[step.to] = names.pop(step.path)
    elif os.path.dirname(step.path) in names:  # A file, a link or a folder in a folder that is there.
        names[step.path] = None if step.call == "mkdir" else step.file


class Tracing:
    """Notes the calls of the functions of `os` below a folder."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._lock = threading.RLock()
        self._files: dict[int, int] = {}
        """The number of a content by the inode that has it."""
        self._next = 1

    @contextlib.contextmanager
    def tracing(self) -> Iterator[Trace]:
        given = {name: getattr(os, name) for name in _TRACED}
        write = CheckedFile.write

        def checked(file: CheckedFile, data: Any, /) -> int:
            with self._lock:
                at = os.lseek(file.fileno(), 0, os.SEEK_CUR)
                length = write(file, data)
                self._wrote(file.fileno(), at, bytes(memoryview(data).cast("B")))
                return length

        def traced(name: str) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                with self._lock:
                    return getattr(self, f"_{name}")(given[name], *arguments, **options)

            return call

        try:
            for name in _TRACED:
                setattr(os, name, traced(name))
            CheckedFile.write = checked  # type: ignore[method-assign]
            yield self.trace
        finally:
            for name, function in given.items():
                setattr(os, name, function)
            CheckedFile.write = write  # type: ignore[method-assign]

    def _path(self, path: Any, folder: int | None = None) -> str | None:
        """Return the path below the root, or None."""
        text = os.fsdecode(path) if not isinstance(path, int) else os.readlink(f"/proc/self/fd/{path}")
        if folder is not None and not text.startswith("/"):
            text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
        text = os.path.normpath(text)
        if text == self.trace.root:
            return ""
        return text[len(self.trace.root) + 1 :] if text.startswith(f"{self.trace.root}/") else None

    def _note(self, call: str, **facts: Any) -> None:
        self.trace.steps.append(Step(call, **facts))

    def _wrote(self, descriptor: int, at: int, data: bytes) -> None:
        if (file := self._file(descriptor)) is not None:
            self._note("write", file=file, at=at, data=data)

    def _file(self, descriptor: int) -> int | None:
        return self._files.get(os.fstat(descriptor).st_ino)

    def _open(self, real: Any, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        where = self._path(path, dir_fd)
        unnamed = flags & os.O_TMPFILE == os.O_TMPFILE
        was = where is not None and not unnamed and os.path.exists(os.path.join(self.trace.root, where))
        descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
        if where is not None and (unnamed or (flags & os.O_CREAT and not was)):
            self._files[os.fstat(descriptor).st_ino] = self._next
            if not unnamed:
                self._note("create", path=where, file=self._next)
            self._next += 1
        elif where is not None and flags & os.O_TRUNC:
            self._note("truncate", file=self._file(descriptor), at=0)
        return descriptor

    def _write(self, real: Any, descriptor: int, data: Any) -> int:
        flags = os.fstat(descriptor)
        known = flags.st_ino in self._files
        at = os.lseek(descriptor, 0, os.SEEK_CUR) if known else 0
        length: int = real(descriptor, data)
        if known:
            self._wrote(descriptor, at, bytes(memoryview(data)[:length]))
        return length

    def _pwrite(self, real: Any, descriptor: int, data: Any, at: int) -> int:
        length: int = real(descriptor, data, at)
        self._wrote(descriptor, at, bytes(memoryview(data)[:length]))
        return length

    def _pwritev(self, real: Any, descriptor: int, buffers: Any, at: int, flags: int = 0) -> int:
        length: int = real(descriptor, buffers, at, flags)
        self._wrote(descriptor, at, b"".join(map(bytes, buffers))[:length])
        return length

    def _ftruncate(self, real: Any, descriptor: int, length: int) -> None:
        real(descriptor, length)
        if (file := self._file(descriptor)) is not None:
            self._note("truncate", file=file, at=length)

    def _fsync(self, real: Any, descriptor: int) -> None:
        real(descriptor)
        if (file := self._file(descriptor)) is not None:
            self._note("fsync", file=file)
        elif (path := self._path(descriptor)) is not None:
            self._note("fsync folder", path=path)

    _fdatasync = _fsync

    def _link(self, real: Any, source: Any, target: Any, **options: Any) -> None:
        real(source, target, **options)
        where = self._path(target, options.get("dst_dir_fd"))
        if where is not None:
            inode = os.stat(os.path.join(self.trace.root, where)).st_ino
            self._note("link", path=where, file=self._files[inode])

    def _rename(self, real: Any, source: Any, target: Any, **options: Any) -> None:
        path, to = self._path(source, options.get("src_dir_fd")), self._path(target, options.get("dst_dir_fd"))
        real(source, target, **options)
        if path is not None:
            self._note("rename", path=path, to=to)

    _replace = _rename

    def _unlink(self, real: Any, path: Any, *, dir_fd: int | None = None) -> None:
        where = self._path(path, dir_fd)
        real(path, dir_fd=dir_fd)
        if where is not None:
            self._note("unlink", path=where)

    _remove = _unlink

    def _rmdir(self, real: Any, path: Any, *, dir_fd: int | None = None) -> None:
        where = self._path(path, dir_fd)
        real(path, dir_fd=dir_fd)
        if where is not None:
            self._note("rmdir", path=where)

    def _mkdir(self, real: Any, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(path, mode, dir_fd=dir_fd)
        if (where := self._path(path, dir_fd)) is not None:
            self._note("mkdir", path=where)


_TRACED = (
    "open",
    "write",
    "pwrite",
    "pwritev",
    "ftruncate",
    "fsync",
    "fdatasync",
    "link",
    "rename",
    "replace",
    "unlink",
    "remove",
    "rmdir",
    "mkdir",
)


def nothing_unsynced() -> bool:
    """Lose all that was not synced."""
    return False


def some_unsynced(draw: random.Random, share: float) -> Callable[[], bool]:
    """Keep each step that was not synced with some probability."""
    return lambda: draw.random() < share
