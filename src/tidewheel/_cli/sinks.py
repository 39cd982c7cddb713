"""`tidewheel sinks`: list the guarantees of each sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from tidewheel._cli.console import console
from tidewheel._subjects import added, load

if TYPE_CHECKING:
    from tidewheel._connectors.sink import Sink


def kinds() -> dict[str, type[Sink]]:
    """Return every sink by the name of its factory."""
    # Imported here because they import Arrow, which would slow down the other commands.
    from tidewheel._connectors.files.sink import files
    from tidewheel._connectors.functions.for_each import for_each
    from tidewheel._connectors.functions.for_each_batch import for_each_batch
    from tidewheel._connectors.memory.collect import collect
    from tidewheel._connectors.memory.console import console
    from tidewheel._connectors.memory.discard import discard

    optional = (load("sinks", name) for name in added("sinks"))
    factories = (files, *optional, collect, discard, for_each_batch, for_each, console)
    return {each.__name__: each.__globals__[each.__annotations__["return"]] for each in factories}


def sinks() -> None:
    """List the sinks with their guarantees.

    Exactly once: each record is visible once, whatever fails. Effectively once: a record may be written again with the
    same effect. At least once: no record is lost, but records of the newest commit may appear again after a failure.
    """
    table = Table("sink", "guarantee", "", box=None, pad_edge=False)
    for name, kind in kinds().items():
        table.add_row(name, kind.guarantee, (kind.__doc__ or "").partition("\n")[0])
    console().print(table)
