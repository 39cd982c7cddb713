"""Where a program's records come from. Any function from a Spark session to a streaming DataFrame is a source too."""

from tidewheel.sources.base import Source
from tidewheel.sources.dataframe import dataframe
from tidewheel.sources.files import files
from tidewheel.sources.inbox import inbox
from tidewheel.sources.iterable import iterable
from tidewheel.sources.kafka import kafka
from tidewheel.sources.mqtt import mqtt
from tidewheel.sources.nats import nats
from tidewheel.sources.rate import rate

__all__ = ["Source", "dataframe", "files", "inbox", "iterable", "kafka", "mqtt", "nats", "rate"]
