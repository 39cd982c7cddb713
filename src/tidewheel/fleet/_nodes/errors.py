"""Errors of a fleet's membership and routing."""

from __future__ import annotations

from tidewheel.errors import TidewheelError


class CoordinatorError(TidewheelError, public="tidewheel.fleet"):
    """Base of the errors of the coordinator."""


class AlreadyMember(CoordinatorError):
    """The node is already a member."""


class UnknownNode(CoordinatorError):
    """The node is not a member."""


class NoNodes(CoordinatorError):
    """No node can take an event; nothing was sent."""


class AssignmentRefused(CoordinatorError):
    """An assignment is not newer than the current one, or not for this fleet."""


class NotCommitted(CoordinatorError):
    """The cells could not be reached. A retry is safe, even if the change was committed."""


class HandoverRefused(TidewheelError):
    """A record must not follow the newest one of a chain, because it is based on an older one."""


class Overtaken(TidewheelError):
    """A later run has a shard that this run wanted to take; start another run."""


class ProgramDiffers(CoordinatorError):
    """A node was started with another program, state or inbox than the fleet."""


class UnknownFleet(CoordinatorError):
    """There is no fleet of that job at these locations."""
