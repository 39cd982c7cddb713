"""How long each step's own code takes, where steps call one another."""

from __future__ import annotations

import time


class BusyTime:
    """Seconds by step. Time that a step spends in calls of another step counts for the other step.

    >>> busy = BusyTime()
    >>> busy.begin("map")
    >>> busy.begin("sink")
    >>> busy.end()
    >>> busy.end()
    >>> sorted(busy.seconds)
    ['map', 'sink']
    """

    def __init__(self, wanted: bool = True) -> None:
        """Measure, or do nothing if the times are not wanted."""
        self._wanted = wanted
        self.seconds: dict[str, float] = {}
        self._turns: list[str] = []
        self._since = 0.0

    def begin(self, operator: str) -> None:
        """Begin the turn of a step, inside the current turn."""
        self._count()
        self._turns.append(operator)

    def end(self) -> None:
        """End the turn that began last."""
        self._count()
        self._turns.pop()

    def _count(self) -> None:
        if not self._wanted:
            return
        now = time.perf_counter()
        if self._turns:
            operator = self._turns[-1]
            self.seconds[operator] = self.seconds.get(operator, 0.0) + now - self._since
        self._since = now
