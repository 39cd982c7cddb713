"""Deliver rounds of blocks to an inbox: one at a time, and each until it is stored.

**A round is appended only after the previous one is stored.** The next round is cut and encoded in the meantime, but
not sent. So of a producer's events in a shard, exactly those with the numbers 1 to n are stored: no reader ever sees
event n+1 without n, and a returning producer finds in its marks exactly what is stored. If n and n+1 were in transit
together, n could fail and n+1 be stored: its mark would say that n is stored too, and both the repeat of n and a replay
would skip it. An inbox that detects the gap rejects n+1 as the event of another program; a producer's own numbers can
have gaps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidewheel.errors import TidewheelError
from tidewheel.fleet._inbox.base import Block, Inbox, marks_s
from tidewheel.fleet._inbox.errors import InboxError, InboxUnavailable

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0


@dataclass(frozen=True, slots=True)
class Round:
    """Blocks that are appended together: at most one per shard. None: all events of a batch were already stored."""

    producer: str
    blocks: Sequence[Block]
    count: int
    """The number of events."""
    size: int
    """Their approximate size in bytes."""
    ends: int
    """The number of the batch that is stored completely after this round; 0 if more of its rounds follow."""


class Delivery:
    """Appends rounds for one session of a router. Not thread-safe, except for reading `last_stored`."""

    def __init__(self, inbox: Inbox, session: str, timeout: float, closing: threading.Event) -> None:
        """Use the number of seconds to retry a round; `closing` ends the retries early."""
        self._inbox, self._session, self._timeout, self._closing = inbox, session, timeout, closing
        self._first_sent: float | None = None
        """When the round was first sent; None if no round is pending."""
        self.last_stored = time.monotonic()

    def append(self, round: Round) -> TidewheelError | None:
        """Append a round until it succeeds, fails permanently, or times out; after an error, pass the same round again."""
        pause, began = _FIRST_PAUSE_S, time.monotonic()
        if self._first_sent is None:
            self._first_sent = began
        while True:
            if time.monotonic() - self._first_sent > marks_s(round.producer) / 2:
                return InboxError(
                    f"{round.count} events were sent to {self._inbox.url} and not answered, longer ago than the inbox remembers "
                    "producers: it is unknown whether they are stored"
                )
            try:
                self._inbox.append(round.producer, self._session, round.blocks)
            except InboxUnavailable as error:
                if time.monotonic() + pause > began + self._timeout or self._closing.wait(pause):
                    return error
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            except TidewheelError as error:
                return error
            except Exception as error:
                return InboxError(f"appending to {self._inbox.url} failed: {type(error).__name__}: {error}")
            else:
                self.last_stored, self._first_sent = time.monotonic(), None
                return None
