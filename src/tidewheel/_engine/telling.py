"""What a run tells of itself while it goes, to whoever looks: now to its history."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidewheel._engine.figures import Figures, Told, operator_records
from tidewheel._observe.run_history import RunHistory
from tidewheel.errors import HeldError

if TYPE_CHECKING:
    from tidewheel._engine.run import ChainRun

_LOG = logging.getLogger(__name__)


class Telling:
    """Begins and ends with a run. No method of it raises or waits, but `close`, which waits for the history's last part."""

    def __init__(self, run: ChainRun, *, node: str = "", history_seconds: float | None = None) -> None:
        """Take the run, its node in a fleet, and how long its history stays; None: there is none."""
        self._run = run
        self._history: RunHistory | None = None
        told: list[Told] = []
        if history_seconds is not None:
            self._history = RunHistory(run.store, run.job.name, run.token, node=node, keep_seconds=history_seconds)
            told.append(self._history)
        self._figures = Figures(run.plan, told, node)
        if told:
            run.figures = self._figures

    def started(self) -> None:
        """The run has the job."""
        if self._history is not None:
            from tidewheel import __version__

            self._history.started(operator_records(self._run.plan), self._run.job.n_shards, __version__)
            self._history.recall_sizes(self._figures.recall)

    def failed(self, error: BaseException, batch: int | None = None, *, restarted: bool = False) -> None:
        """The run has failed; `restarted` if it goes on from the last commit."""
        # A run that was refused because another has the job is no event of the job.
        if self._history is not None and not isinstance(error, HeldError):
            try:
                self._history.failed(error, batch, restarted=restarted)
            except Exception:
                _LOG.exception("an error cannot be noted")

    def close(self) -> None:
        """The run is over."""
        if self._history is not None:
            self._history.close()
