"""MessageBuffer: many small batches handled as one, where handling costs less per message the more there are."""

from __future__ import annotations

from collections.abc import Callable

from tidewheel._values import Batch

ROWS = 500_000
"""How many messages are gathered at the most: enough to share the work of finding and sorting keys, and still small in memory."""


class MessageBuffer:
    """Messages that wait until there are enough, or no more."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._waiting: list[Batch] = []
        self._rows = 0

    def add(self, batch: Batch, process: Callable[[Batch], None]) -> None:
        """Keep the batch, and process all that waits once it is enough."""
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows >= ROWS:
            self.finish(process)

    def finish(self, process: Callable[[Batch], None]) -> None:
        """Process all that waits."""
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if waiting:
            process(Batch.joined(waiting))
