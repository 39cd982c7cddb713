"""Protection of objects whose threads, locks or sockets do not exist in a forked process."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkGuarded(Protocol):
    """An object that a forked child inherits and must not use."""

    def after_fork(self) -> None:
        """Reject further use. Called in the child, before anything else runs; it must not wait for a lock."""


_guarded: weakref.WeakSet[ForkGuarded] = weakref.WeakSet()


def guard(owner: ForkGuarded) -> None:
    """Call `owner.after_fork` in every process that is forked from this one, as long as the owner lives."""
    _guarded.add(owner)


def opened_before_fork(what: str) -> str:
    """Return the error text for an object that was opened before a fork."""
    return (
        f"{what} was opened before this process was forked, and cannot be used here: open it after forking only, or start "
        "processes by spawning"
    )


def _after_fork() -> None:
    for owner in list(_guarded):
        owner.after_fork()


os.register_at_fork(after_in_child=_after_fork)
