"""Fleets: several nodes run one job. Producers route events to the inbox of its shards."""

from tidewheel._connectors.inbox import Inbox, open_inbox
from tidewheel._connectors.inbox.errors import InboxError, InboxUnavailable, NotTaken, UnreadableEvent
from tidewheel._fleet.assignment import Assignment, add_node, remove_node
from tidewheel._fleet.coordinator import Coordinator
from tidewheel._fleet.errors import (
    AlreadyMember,
    AssignmentRefused,
    CoordinatorError,
    NoNodes,
    NotCommitted,
    ProgramDiffers,
    UnknownFleet,
    UnknownNode,
)
from tidewheel._fleet.router import Router

__all__ = [
    "AlreadyMember",
    "Assignment",
    "AssignmentRefused",
    "Coordinator",
    "CoordinatorError",
    "Inbox",
    "InboxError",
    "InboxUnavailable",
    "NoNodes",
    "NotCommitted",
    "NotTaken",
    "ProgramDiffers",
    "Router",
    "UnknownFleet",
    "UnknownNode",
    "UnreadableEvent",
    "add_node",
    "open_inbox",
    "remove_node",
]
