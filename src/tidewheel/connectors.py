"""The parts of your own source or sink. `tidewheel.testing.connectors` tests it."""

from typing import TYPE_CHECKING, Any

from tidewheel._connectors.log_source import Log, PartitionedSource
from tidewheel._connectors.marker import Marker
from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.source import Source, Unread
from tidewheel._connectors.staging import StagedBatches, published_batches
from tidewheel._core.text import no_attribute
from tidewheel._subjects import added, load

if TYPE_CHECKING:
    from tidewheel._connectors.mqtt.bridge import MqttBridge

__all__ = [
    "Log",
    "Marker",
    "MqttBridge",
    "PartitionedSource",
    "Publication",
    "Sink",
    "SinkPartition",
    "Source",
    "StagedBatches",
    "Staging",
    "Unread",
    "published_batches",
]

if not TYPE_CHECKING:  # To a type checker, a module with such a function would have every name.
    __all__ = [name for name in __all__ if name in globals() or name in added("connectors")]

    def __getattr__(name: str) -> Any:
        if name in added("connectors"):
            return globals().setdefault(name, load("connectors", name))
        raise no_attribute(__name__, name, __all__)
