"""Named fault points: places where a test can kill the process, raise, or delay.

A point costs one dictionary look-up and does nothing unless the environment variable `TIDEWHEEL_FAULTS` arms it.
Only tests set that variable: `name=action[@hit]`, several joined by `;`. Actions: `kill` (SIGKILL to the whole
process group of the job), `raise`, `delay:SECONDS`, `stop` (SIGSTOP to the process group). `@3` means the third time the
point is passed in a process; without it the first.

    TIDEWHEEL_FAULTS="commit.created=kill@2"

Every point is listed in `POINTS`, so that a test can visit them all.
"""

from __future__ import annotations

import os
import signal
import time

from tidewheel.errors import TidewheelError

POINTS: dict[str, str] = {}
"""Every fault point, with the event that it marks."""

_FAULTS = "TIDEWHEEL_FAULTS"
_GROUP = "TIDEWHEEL_FAULT_GROUP"


class InjectedFault(TidewheelError):
    """Raised by a fault point that a test armed with `raise`."""


def declare(name: str, passed_when: str) -> str:
    """Register a point under its name; call it once, in the module that has the point."""
    POINTS[name] = passed_when
    return name


def _parse(text: str) -> dict[str, tuple[str, int]]:
    armed = {}
    for item in filter(None, text.split(";")):
        name, _, action = item.partition("=")
        action, _, hit = action.partition("@")
        armed[name] = (action, int(hit or 1))
    return armed


_armed = _parse(os.environ.get(_FAULTS, ""))
_hits: dict[str, int] = {}


def remember_group() -> None:
    """Make the job's process group known to worker processes, which Spark puts in a group of their own.

    Only if faults are armed for them: a process that starts others must not make them end its own group.
    """
    if os.environ.get(_FAULTS):
        os.environ[_GROUP] = str(os.getpgrp())


def arm(text: str) -> None:
    """Arm points in this process; an empty text disarms all."""
    _armed.clear()
    _armed.update(_parse(text))
    _hits.clear()


def hits() -> dict[str, int]:
    """Return how often each armed point was passed since it was armed."""
    return dict(_hits)


def point(name: str) -> None:
    """Pass the named point: nothing happens unless a test has armed it."""
    if not _armed or name not in _armed:
        return
    action, hit = _armed[name]
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] != hit:
        return
    group = int(os.environ.get(_GROUP, os.getpgrp()))
    if action == "kill":
        os.killpg(group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.killpg(group, signal.SIGSTOP)
    elif action == "raise":
        raise InjectedFault(f"fault point {name} was armed to raise")
    elif action.startswith("delay:"):
        time.sleep(float(action.removeprefix("delay:")))
    else:
        raise TidewheelError(f"TIDEWHEEL_FAULTS: unknown action {action!r} for {name}")
