"""How long each operator's own code takes, where operators call one another."""

from __future__ import annotations

import time


class BusyTime:
    """Seconds by operator. What an operator calls inside of its own turn counts for the one that is called.

    >>> busy = BusyTime()
    >>> busy.begin("map")
    >>> busy.begin("sink")
    >>> busy.end()
    >>> busy.end()
    >>> sorted(busy.seconds)
    ['map', 'sink']
    """

    def __init__(self, wanted: bool = True) -> None:
        """Count, or if nobody wants to know, do nothing."""
        self._wanted = wanted
        self.seconds: dict[str, float] = {}
        self._turns: list[str] = []
        self._since = 0.0

    def begin(self, operator: str) -> None:
        """Let an operator's turn begin, inside of the one that goes on."""
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
