"""The errors of inboxes."""

from __future__ import annotations

from tidewheel.errors import ConnectorError, ConnectorUnavailable


class InboxError(ConnectorError, public="tidewheel.fleet"):
    """An operation on an inbox failed."""


class InboxUnavailable(InboxError, ConnectorUnavailable):
    """The inbox did not answer in time; unacknowledged events can be sent again under the same stamp."""


class NotTaken(InboxUnavailable):
    """A router rejected an event, because earlier ones could not be delivered. Route it again after `flush`.

    `taken` is the number of events of the same call that were accepted before it: do not route those again.
    """

    def __init__(self, text: str, taken: int = 0) -> None:
        super().__init__(text)
        self.taken = taken


class UnreadableEvent(InboxError):
    """An event does not have the columns that the program declares; the text says how to skip it."""
