"""Sources of records for a program. Any function from a Spark session to a streaming DataFrame is a source too."""

from typing import TYPE_CHECKING, Any

from tidewheel._connectors.files.source import files
from tidewheel._connectors.memory.iterable import iterable
from tidewheel._connectors.memory.rate import rate
from tidewheel._connectors.source import Source
from tidewheel._connectors.spark.dataframe import dataframe
from tidewheel._core.text import no_attribute
from tidewheel._subjects import added, load

if TYPE_CHECKING:
    from tidewheel._connectors.delta_history.source import delta
    from tidewheel._connectors.iceberg_history.source import iceberg
    from tidewheel._connectors.kafka.chain import chain
    from tidewheel._connectors.kafka.source import kafka
    from tidewheel._connectors.mqtt.source import mqtt
    from tidewheel._connectors.nats.source import nats
    from tidewheel.fleet._inbox.source import inbox

__all__ = [
    "Source",
    "chain",
    "dataframe",
    "delta",
    "files",
    "iceberg",
    "inbox",
    "iterable",
    "kafka",
    "mqtt",
    "nats",
    "rate",
]

if not TYPE_CHECKING:  # To a type checker, a module with such a function would have every name.
    __all__ = [name for name in __all__ if name in globals() or name in added("sources")]

    def __getattr__(name: str) -> Any:
        if name in added("sources"):
            return globals().setdefault(name, load("sources", name))
        raise no_attribute(__name__, name, __all__)
