"""The terminal display of a run: a spinner while it starts, then one updating line."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from tidewheel._cli.progress import LineProgress
from tidewheel._core.lost_terminal import survive_loss

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from tidewheel._spark.progress import BatchProgress, RunResult

_TICK_SECONDS = 0.1
_QUIET_SECONDS = 3
"""The seconds without a batch after which the line shows the time since the last batch."""


class LiveProgress(LineProgress):
    """A spinner with the phase while the run starts; then one line with the newest batch and the totals."""

    def __init__(self, console: Console) -> None:
        """Use a console that is a terminal."""
        super().__init__(console)
        self._spinner = Spinner("dots")
        self._newest: BatchProgress | None = None
        self._newest_at = 0.0
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="tidewheel-terminal", daemon=True)
        self._live = Live(
            self,
            console=console,
            auto_refresh=False,
            transient=True,
            # Output that is redirected to a file must not be captured.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )

    def __enter__(self) -> LiveProgress:
        self._live.start()
        self._ticker.start()
        return self

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.start.current is not None:
            text = f"starting: {self.start.current}, {self.start.elapsed():.0f} s"
            self._spinner.update(text=Text(text, style="dim"))
            yield self._spinner
        elif not self._over.is_set():
            yield Text(self._line(), no_wrap=True, overflow="ellipsis", style="red" if self.rejected else "")

    def phase(self, phase: str | None) -> None:
        """Show the phase in the spinner; after the start, report the duration of each phase."""
        text = self._enter(phase)
        if phase is None:
            self._print(text, "dim")
        self._refresh()

    def batch(self, batch: BatchProgress) -> None:
        """Show the batch in the line."""
        self._count(batch)
        self._newest, self._newest_at = batch, time.monotonic()
        self._refresh()

    def ended(self, result: RunResult) -> None:
        """Remove the line and print a summary."""
        self.close()
        super().ended(result)

    def _line(self) -> str:
        batch = self._newest
        if batch is None:
            return "waiting for data"
        quiet = time.monotonic() - self._newest_at
        ago = f", {quiet:.0f} s ago" if quiet >= _QUIET_SECONDS else ""
        return f"{batch.label}: {batch.rows:,} rows, {batch.rate:,} rows/s{ago} · {self.counts()}"

    def _tick(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            self._refresh()

    def _refresh(self) -> None:
        with survive_loss(self.console.file):
            self._live.refresh()

    def close(self) -> None:
        if not self._over.is_set():
            self._over.set()
            if self._ticker.is_alive():
                self._ticker.join()
            with survive_loss(self.console.file):
                self._live.stop()
