"""Ctrl-C, SIGTERM and SIGHUP during a run."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Protocol

from tidewheel._core.logs import logger
from tidewheel._core.lost_terminal import survive_loss

_LOG = logger(__name__)

_ABORTED = 130
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a run to end."""


class Stoppable(Protocol):
    """A run that can be asked to stop."""

    @property
    def stopping(self) -> bool:
        """Whether it was asked."""

    @property
    def starting(self) -> bool:
        """Whether it has not come to its first batch yet."""

    def stop(self) -> None:
        """Let the batch finish, then end the run."""


class Interrupts:
    """During a run: the first Ctrl-C, SIGTERM or SIGHUP lets the batch finish and ends the run, a second Ctrl-C aborts.

    A run that is starting ends before the next phase of its start.

    A SIGHUP that is ignored, as under nohup, stays ignored. Signals are handled in the main thread only; a run in another
    thread leaves them to their owner.
    """

    def __init__(self, run: Stoppable) -> None:
        """Take the run that is to stop."""
        self._run = run
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self.take()
        return self

    def take(self) -> None:
        """Handle the signals, again where somebody else has begun to: Spark does when it starts in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                handler = signal.getsignal(number)
                if handler == self._interrupted or (number == signal.SIGHUP and handler is signal.SIG_IGN):
                    continue
                self._before.setdefault(number, handler)
                signal.signal(number, self._interrupted)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupted(self, number: int, _: FrameType | None) -> None:
        if self._run.stopping:
            if number == signal.SIGINT:
                os._exit(_ABORTED)
            return
        # First: a second signal may come while this one is reported.
        self._run.stop()
        when = "before the start goes further" if self._run.starting else "when the batch is committed"
        text = f"stopping {when}; press Ctrl-C again to abort"
        if logging.getLogger("tidewheel").handlers:
            _LOG.warning(text)
            return
        # Not by `logging`'s last resort, which fails when the terminal has gone away.
        with survive_loss(sys.stderr):
            print(text, file=sys.stderr, flush=True)
