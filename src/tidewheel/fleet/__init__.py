"""Fleets: several nodes run one job. Producers route events to the inbox of its shards."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidewheel._core.text import no_attribute

if TYPE_CHECKING:
    from tidewheel.fleet._inbox import Inbox, open_inbox
    from tidewheel.fleet._inbox.errors import InboxError, InboxUnavailable, NotTaken, UnreadableEvent
    from tidewheel.fleet._nodes.assignment import Assignment, add_node, remove_node
    from tidewheel.fleet._nodes.coordinator import Coordinator
    from tidewheel.fleet._nodes.errors import (
        AlreadyMember,
        AssignmentRefused,
        CoordinatorError,
        NoNodes,
        NotCommitted,
        ProgramDiffers,
        UnknownFleet,
        UnknownNode,
    )
    from tidewheel.fleet._nodes.router import Router

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

_HOMES = {
    "AlreadyMember": "_nodes.errors",
    "Assignment": "_nodes.assignment",
    "AssignmentRefused": "_nodes.errors",
    "Coordinator": "_nodes.coordinator",
    "CoordinatorError": "_nodes.errors",
    "Inbox": "_inbox",
    "InboxError": "_inbox.errors",
    "InboxUnavailable": "_inbox.errors",
    "NoNodes": "_nodes.errors",
    "NotCommitted": "_nodes.errors",
    "NotTaken": "_inbox.errors",
    "ProgramDiffers": "_nodes.errors",
    "Router": "_nodes.router",
    "UnknownFleet": "_nodes.errors",
    "UnknownNode": "_nodes.errors",
    "UnreadableEvent": "_inbox.errors",
    "add_node": "_nodes.assignment",
    "open_inbox": "_inbox",
    "remove_node": "_nodes.assignment",
}
"""The module of each name. Imported when first used: a command that lists the commands needs none of them."""

if not TYPE_CHECKING:  # To a type checker, a module with such a function would have every name.

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise no_attribute(__name__, name, __all__)
        return globals().setdefault(name, getattr(import_module(f"{__name__}.{_HOMES[name]}"), name))
