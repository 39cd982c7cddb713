"""Rounds of blocks on their way into an inbox: one at a time, and each until it is stored.

**A round is appended only when the one before it is stored.** The next one is cut and encoded in the meantime, but nothing of it
is sent. So of a producer's events in a shard, those with the numbers 1 to n are stored and no others: no reader ever sees event
n+1 without n, and a producer that comes back finds in its marks exactly what is stored. Were n+1 on its way while n is, n could
fail and n+1 be stored: its mark would say that n is stored too, and both the repeat of n and a replay would pass over it. An
inbox that finds the gap refuses n+1, and takes it for the event of another program; numbers of a producer's own have gaps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidewheel._connectors.inbox.base import Block, Inbox, marks_s
from tidewheel._connectors.inbox.errors import InboxError, InboxUnavailable
from tidewheel.errors import TidewheelError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0


@dataclass(frozen=True, slots=True)
class Round:
    """Blocks that are appended together: at most one of each shard. None: all of a batch was stored already."""

    producer: str
    blocks: Sequence[Block]
    count: int
    """How many events these are."""
    size: int
    """About how many bytes they take."""
    ends: int
    """The number of the batch that is stored when this round is; 0: more rounds of it follow."""


class Delivery:
    """Appends rounds for one session of a router. Used by one thread at a time; `last_stored` may be read by others."""

    def __init__(self, inbox: Inbox, session: str, timeout: float, closing: threading.Event) -> None:
        """Take the seconds for which a round is tried; `closing` ends that early."""
        self._inbox, self._session, self._timeout, self._closing = inbox, session, timeout, closing
        self._first_sent: float | None = None
        """When the round was sent for the first time; None if nothing is in doubt."""
        self.last_stored = time.monotonic()

    def append(self, round: Round) -> TidewheelError | None:
        """Append a round until it works, an error says that it never will, or the time is up; then give the same one again."""
        pause, began = _FIRST_PAUSE_S, time.monotonic()
        if self._first_sent is None:
            self._first_sent = began
        while True:
            if time.monotonic() - self._first_sent > marks_s(round.producer) / 2:
                return InboxError(
                    f"{round.count} events were sent to {self._inbox.url} and not answered, longer ago than the inbox remembers "
                    "producers: whether they are stored cannot be told any more"
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
