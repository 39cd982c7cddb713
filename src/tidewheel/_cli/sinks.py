"""`tidewheel sinks`: list the guarantees of each sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from tidewheel._cli.console import console

if TYPE_CHECKING:
    from tidewheel._connectors.sink import Sink


def kinds() -> dict[str, type[Sink]]:
    """Return every sink by the name of its factory."""
    # Imported here because they import Arrow, which would slow down the other commands.
    from tidewheel._connectors.delta.sink import Delta
    from tidewheel._connectors.files.sink import Files
    from tidewheel._connectors.functions.for_each import ForEach
    from tidewheel._connectors.functions.for_each_batch import ForEachBatch
    from tidewheel._connectors.kafka.sink import Kafka
    from tidewheel._connectors.memory.collect import Collect
    from tidewheel._connectors.memory.console import Console as ConsoleSink
    from tidewheel._connectors.memory.discard import Discard
    from tidewheel._connectors.mqtt.sink import Mqtt
    from tidewheel._connectors.nats.sink import Nats
    from tidewheel._connectors.postgres.sink import Postgres

    return {
        "files": Files,
        "postgres": Postgres,
        "delta": Delta,
        "kafka": Kafka,
        "nats": Nats,
        "collect": Collect,
        "discard": Discard,
        "for_each_batch": ForEachBatch,
        "mqtt": Mqtt,
        "for_each": ForEach,
        "console": ConsoleSink,
    }


def sinks() -> None:
    """List the sinks with their guarantees.

    Exactly once: each record is visible once, whatever fails. Effectively once: a record may be written again with the
    same effect. At least once: no record is lost, but records of the newest commit may appear again after a failure.
    """
    table = Table("sink", "guarantee", "", box=None, pad_edge=False)
    for name, kind in kinds().items():
        table.add_row(name, kind.guarantee, (kind.__doc__ or "").partition("\n")[0])
    console().print(table)
