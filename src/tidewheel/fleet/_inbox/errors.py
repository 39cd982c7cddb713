"""What can go wrong with an inbox."""

from __future__ import annotations

from tidewheel.errors import ConnectorError, ConnectorUnavailable


class InboxError(ConnectorError, public="tidewheel.fleet"):
    """An inbox could not do what was asked of it."""


class InboxUnavailable(InboxError, ConnectorUnavailable):
    """The inbox did not answer in time; what was not acknowledged may be sent again under the same stamp."""


class NotTaken(InboxUnavailable):
    """A router did not take an event, because earlier ones could not be delivered. Route it again after `flush`.

    `taken` is how many events of the same call were taken before it, and are kept: do not route those again.
    """

    def __init__(self, text: str, taken: int = 0) -> None:
        super().__init__(text)
        self.taken = taken


class UnreadableEvent(InboxError):
    """An event does not have the columns that the program declares; the text says how to go on without it."""
