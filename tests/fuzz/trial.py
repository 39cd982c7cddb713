"""Reads bytes by a target and fails on what must not be, whatever the bytes are."""

from __future__ import annotations

import contextlib

from fuzz.targets import Target, folder
from support.watch import Watch, forget_peak, in_time, peak

SLOWEST_S = 20
ROOM = 96 << 10
"""KiB that reading a few KiB may take: blocks of up to 16 MiB may be compressed at any ratio."""


def attempt(target: Target, data: bytes) -> None:
    """Read the bytes; raise an error unless the reader returns or raises an error of this package, in time."""
    with Watch(folder()) as watch, contextlib.suppress(*target.errors):
        in_time(lambda: target.read(data), SLOWEST_S)
    assert not watch.found, f"{target.name} did {watch.found} for {data!r}"


class Memory:
    """Checks that reading took no more memory than it may."""

    def __init__(self, target: Target) -> None:
        self._target = target
        for example in target.examples():
            attempt(target, example)
        forget_peak()
        self._normal = peak()

    def check(self) -> None:
        grown = peak() - self._normal
        assert grown < ROOM, f"{self._target.name} took {grown} KiB more"
