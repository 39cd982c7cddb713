"""Where a program's records come from. Any function from a Spark session to a streaming DataFrame is a source too."""

from typing import TYPE_CHECKING, NoReturn

from tidewheel._connectors.files.source import files
from tidewheel._connectors.inbox.source import inbox
from tidewheel._connectors.kafka.source import kafka
from tidewheel._connectors.memory.iterable import iterable
from tidewheel._connectors.memory.rate import rate
from tidewheel._connectors.mqtt.source import mqtt
from tidewheel._connectors.nats.source import nats
from tidewheel._connectors.source import Source
from tidewheel._connectors.spark.dataframe import dataframe
from tidewheel._core.text import no_attribute

__all__ = ["Source", "dataframe", "files", "inbox", "iterable", "kafka", "mqtt", "nats", "rate"]

if not TYPE_CHECKING:  # To a type checker, a module with such a function would have every name.

    def __getattr__(name: str) -> NoReturn:
        raise no_attribute(__name__, name, __all__)
