"""Where a program's records come from. Any function from a Spark session to a streaming DataFrame is a source too."""

from tidewheel._connectors.files.source import files
from tidewheel._connectors.inbox.source import inbox
from tidewheel._connectors.kafka.source import kafka
from tidewheel._connectors.memory.iterable import iterable
from tidewheel._connectors.mqtt.source import mqtt
from tidewheel._connectors.nats.source import nats
from tidewheel._connectors.source import Source
from tidewheel._connectors.spark.dataframe import dataframe
from tidewheel._connectors.spark.rate import rate

__all__ = ["Source", "dataframe", "files", "inbox", "iterable", "kafka", "mqtt", "nats", "rate"]
