"""The optional subjects of the package: the parts that not every user needs.

A subject lives in one folder, with its commands, and has one line in `SUBJECTS`. Without the folder and the line, the rest of
the package works. A folder `with_x` inside a subject needs the subject `x` as well, and is removed with either.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, NamedTuple

Kind = Literal["cells", "commands", "connectors", "sinks", "sources", "tables"]


class Subject(NamedTuple):
    """What a subject adds to the package: names with their modules, relative to the subject's folder, divided by spaces."""

    needs: str = ""
    """Subjects without which this one cannot be imported."""
    commands: str = ""
    """Modules of commands, each named after its command."""
    cells: str = ""
    """Names in `tidewheel.cells`; likewise the following ones."""
    connectors: str = ""
    sinks: str = ""
    sources: str = ""
    tables: str = ""


SUBJECTS = {
    "_cells.tickets": Subject(cells="signed.TicketIssuer signed.TicketValidator"),
    "_connectors.delta": Subject(sinks="sink.delta", tables="reference_table.delta"),
    "_connectors.delta_history": Subject("_connectors.delta", sources="source.delta"),
    "_connectors.iceberg": Subject(sinks="sink.iceberg"),
    "_connectors.iceberg_history": Subject("_connectors.iceberg", sources="source.iceberg"),
    "_connectors.kafka": Subject(sinks="sink.kafka", sources="chain.chain source.kafka"),
    "_connectors.mqtt": Subject("fleet", connectors="bridge.MqttBridge", sinks="sink.mqtt", sources="source.mqtt"),
    "_connectors.nats": Subject(sinks="sink.nats", sources="source.nats"),
    "_connectors.postgres": Subject(sinks="sink.postgres"),
    "_ui": Subject(commands="cli.ui cli.top"),
    "cells.aio": Subject(),
    "fleet": Subject(commands="_cli.route _cli.bridge _cli.node _cli.fleet", sources="_inbox.source.inbox"),
}
"""The subjects by folder. A folder whose name has no underscore is a public module too."""


def added(kind: Kind) -> dict[str, str]:
    """Return the names of one kind that the subjects add, each with its full path."""
    return {
        path.rpartition(".")[2]: f"tidewheel.{folder}.{path}"
        for folder, subject in SUBJECTS.items()
        for path in getattr(subject, kind).split()
    }


def load(kind: Kind, name: str) -> Any:
    """Import a name that a subject adds to a public module; raise a `KeyError` if no subject adds it."""
    module, _, name = added(kind)[name].rpartition(".")
    return getattr(import_module(module), name)


def public_modules() -> tuple[str, ...]:
    """Return the subjects that are public modules directly below the package."""
    return tuple(folder for folder in SUBJECTS if folder.isidentifier() and not folder.startswith("_"))
