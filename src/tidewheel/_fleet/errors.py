"""What can go wrong with a fleet's membership and its routing."""

from __future__ import annotations

from tidewheel.errors import TidewheelError


class CoordinatorError(TidewheelError, public="tidewheel.fleet"):
    """Base of the errors of the coordinator."""


class AlreadyMember(CoordinatorError):
    """The node has joined before."""


class UnknownNode(CoordinatorError):
    """The node is not a member."""


class NoNodes(CoordinatorError):
    """No node is there to take an event; nothing was sent."""


class AssignmentRefused(CoordinatorError):
    """An assignment that is not newer than the one that stands, or not for this fleet."""


class NotCommitted(CoordinatorError):
    """The cells could not be reached. A retry works, also if the change was committed after all."""


class HandoverRefused(TidewheelError):
    """A record that must not follow the newest one of a chain; whoever made it looked at an older one."""


class Overtaken(TidewheelError):
    """A later run has a shard that this one was to take; begin another run."""


class ProgramDiffers(CoordinatorError):
    """A node was started with another program, state or inbox than the fleet has."""


class UnknownFleet(CoordinatorError):
    """No fleet of that job is at these places."""
