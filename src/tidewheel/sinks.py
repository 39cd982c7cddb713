"""Sinks for the records of a program. Each sink states its guarantee.

| sink | guarantee |
|---|---|
| `files` | exactly once |
| `postgres` | exactly once |
| `delta` | exactly once |
| `iceberg` | exactly once |
| `kafka` | exactly once to readers of committed transactions; or at least once |
| `nats` | exactly once, in streams that allow atomic batches; else at least once |
| `collect` | exactly once, within one process |
| `discard` | exactly once: nothing is visible |
| `for_each_batch` | at least once; effectively once if the function is idempotent by its sequence |
| `mqtt` | at least once |
| `for_each` | at least once |
| `console` | at least once |
"""

from typing import TYPE_CHECKING, Any

from tidewheel._connectors.files.sink import files, whole_files
from tidewheel._connectors.functions.for_each import for_each
from tidewheel._connectors.functions.for_each_batch import for_each_batch
from tidewheel._connectors.memory.collect import collect
from tidewheel._connectors.memory.console import console
from tidewheel._connectors.memory.discard import discard
from tidewheel._connectors.sink import Sink
from tidewheel._core.text import no_attribute
from tidewheel._subjects import added, load

if TYPE_CHECKING:
    from tidewheel._connectors.delta.sink import delta
    from tidewheel._connectors.iceberg.sink import iceberg
    from tidewheel._connectors.kafka.sink import kafka
    from tidewheel._connectors.mqtt.sink import mqtt
    from tidewheel._connectors.nats.sink import nats
    from tidewheel._connectors.postgres.sink import postgres

__all__ = [
    "Sink",
    "collect",
    "console",
    "delta",
    "discard",
    "files",
    "for_each",
    "for_each_batch",
    "iceberg",
    "kafka",
    "mqtt",
    "nats",
    "postgres",
    "whole_files",
]

if not TYPE_CHECKING:  # To a type checker, a module with such a function would have every name.
    __all__ = [name for name in __all__ if name in globals() or name in added("sinks")]

    def __getattr__(name: str) -> Any:
        if name in added("sinks"):
            return globals().setdefault(name, load("sinks", name))
        raise no_attribute(__name__, name, __all__)
