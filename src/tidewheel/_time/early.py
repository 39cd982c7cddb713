"""Early: when the results of open windows are emitted. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel._time.duration import Duration, nanoseconds

_BEGINNING = -(2**63) + 1
"""A time that every epoch has passed; the time before it still has 64 bits."""


@dataclass(frozen=True)
class Early:
    """Emit the open windows of a key that has new messages: with each batch, or when the clock passes a multiple of `every`."""

    every: int | None
    """In ns; None: with each batch."""

    def due(self, epoch: int | None) -> int:
        """Return the time at which the windows that changed after an epoch are due.

        >>> Early(10).due(7), Early(10).due(9), Early(10).due(-11)
        (9, 19, -1)
        """
        assert self.every is not None, "with each batch, no time decides"
        return _BEGINNING if epoch is None else ((epoch + 1) // self.every + 1) * self.every - 1


def early_of(early: Duration | None, what: str) -> Early | None:
    """Return when early results are emitted: "batch" is with each batch, a duration is by the clock of the data.

    >>> early_of("batch", "early"), early_of("1 us", "early"), early_of(None, "early")
    (Early(every=None), Early(every=1000), None)
    """
    if early is None:
        return None
    return Early(None if early == "batch" else nanoseconds(early, what, 1))
