"""What a reader of hostile bytes must not do: write elsewhere, connect, start processes, hang, or take much memory."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _own_spark() -> tuple[str, int] | None:
    """Return the address of a Spark that other tests have started in this process: its objects call there when they end."""
    pyspark = sys.modules.get("pyspark")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    return None if gateway is None else (gateway.gateway_parameters.address, gateway.gateway_parameters.port)


class Watch:
    """Notes every write outside of a folder, and every attempt to connect or to start a process, of this process.

    It ignores the threads that were there before it: clients of earlier tests may still look for their servers.
    """

    WRITES = frozenset(
        {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod"}
    )
    _current: Watch | None = None
    _hooked = False

    def __init__(self, inside: Path) -> None:
        self.inside, self.found = str(inside), []
        self._others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def __enter__(self) -> Watch:
        if not Watch._hooked:
            sys.addaudithook(Watch._hook)
            Watch._hooked = True
        Watch._current = self
        return self

    def __exit__(self, *error: object) -> None:
        Watch._current = None

    @staticmethod
    def _hook(event: str, arguments: tuple[Any, ...]) -> None:
        watch = Watch._current
        if watch is not None and threading.get_ident() not in watch._others:
            watch.note(event, arguments)

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in (
            "socket.connect",
            "socket.getaddrinfo",
            "subprocess.Popen",
            "os.exec",
            "os.system",
            "os.posix_spawn",
        ):
            if event != "socket.connect" or arguments[1] != _own_spark():
                self.found.append((event, arguments))
        elif (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            self._check(event, arguments[0])
        elif event in self.WRITES:
            for each in arguments:
                if isinstance(each, str | bytes | os.PathLike):
                    self._check(event, each)

    def _check(self, event: str, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        text = os.fsdecode(path)
        # A name alone is one in a folder that is open; folders are opened by their whole paths.
        is_inside = os.path.normpath(text).startswith(self.inside) or ("/" not in text and text != "..")
        if not is_inside and not text.startswith(("/dev/", "/proc/self/")):
            self.found.append((event, text))


def peak() -> int:
    """Return the highest memory of this process in KiB, since `forget_peak`."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


class Hangs(BaseException):
    """The work did not come back in time."""


def in_time(work: Callable[[], Any], seconds: int) -> Any:
    """Do the work in the main thread; raise `Hangs` if it takes longer."""

    def hangs(*arguments: Any) -> None:
        raise Hangs

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(seconds)
    try:
        return work()
    finally:
        signal.alarm(0)
