"""What can go wrong with an inbox."""

from __future__ import annotations

from tidewheel.errors import TidewheelError


class InboxError(TidewheelError):
    """An inbox could not do what was asked of it."""


class InboxUnavailable(InboxError):
    """The inbox did not answer in time; what was not acknowledged may be sent again under the same stamp."""
