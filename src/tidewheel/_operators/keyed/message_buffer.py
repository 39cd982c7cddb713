"""MessageBuffer: collect small batches and process them as one, which costs less per message."""

from __future__ import annotations

from collections.abc import Callable

from tidewheel._values import Batch

ROWS = 500_000
"""The maximum number of collected messages: enough to share the cost of finding keys, and small in memory."""


class MessageBuffer:
    """Messages that wait until there are enough of them, or until the data ends."""

    def __init__(self) -> None:
        self._waiting: list[Batch] = []
        self._rows = 0

    def add(self, batch: Batch, process: Callable[[Batch], None]) -> None:
        """Add a batch; process the collected messages if there are enough."""
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows >= ROWS:
            self.finish(process)

    def finish(self, process: Callable[[Batch], None]) -> None:
        """Process the collected messages."""
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if waiting:
            process(Batch.joined(waiting))
