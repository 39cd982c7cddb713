"""What a source or a sink of your own is made of. `tidewheel.testing.connectors` tests it."""

from tidewheel._connectors.log_source import Log, PartitionedSource
from tidewheel._connectors.marker import Marker
from tidewheel._connectors.mqtt.bridge import MqttBridge
from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.source import Source, Unread
from tidewheel._connectors.staging import StagedBatches, published_batches

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
