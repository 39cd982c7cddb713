"""The life of a run: the phases of its start, and the request to stop, which it obeys before a phase or a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidewheel._engine.run import ChainRun
from tidewheel._spark.progress import FIRST_BATCH


class Stopped(Exception):
    """Raised where a batch, or a phase of the start, must not begin because the run was asked to stop."""


class Lifecycle:
    """Where a run is in its life. `stop` and the properties can be used from any thread."""

    def __init__(self, run: ChainRun, on_phase: Callable[[str | None], None] | None = None) -> None:
        """Take the run, and the function that is called with each phase of its start."""
        self._run, self._on_phase = run, on_phase
        self._stop = threading.Event()
        self.phase: str | None = "checking"
        """The phase of the start; None: the run has run its first batch, or waits for data."""

    @property
    def starting(self) -> bool:
        """Whether the run has not begun its first batch yet."""
        return self.phase not in (None, FIRST_BATCH)

    @property
    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Let the batch that is running finish and commit, then end the run."""
        self._stop.set()

    def wait(self, seconds: float) -> None:
        """Wait for so long, or until the run is asked to stop."""
        self._stop.wait(seconds)

    def is_ordered_to_stop(self) -> bool:
        """Return whether the run was asked to stop, by this process or by another one."""
        if self._run.stop_ordered():
            self.stop()
        return self.stopping

    def check(self) -> None:
        """Raise `Stopped` if the run was asked to stop, by this process or by another one."""
        if self.is_ordered_to_stop():
            raise Stopped

    def enter(self, phase: str | None) -> None:
        """Begin a phase of the start; None ends the start. Raise `Stopped` if a phase must not begin."""
        if phase is not None:
            self.check()
        reported = phase == self.phase != "checking"
        self.phase = phase
        self._run.enter(phase)
        if self._on_phase is not None and not reported:
            self._on_phase(phase)
