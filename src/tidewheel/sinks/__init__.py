"""Where a program's records go. Each sink says its guarantee.

| sink | guarantee |
|---|---|
| `files` | exactly once |
| `postgres` | exactly once |
| `delta` | exactly once |
| `kafka` | exactly once to readers of committed transactions; or at least once |
| `nats` | exactly once, in streams that allow atomic batches; else at least once |
| `collect` | exactly once, within one process |
| `discard` | exactly once: nothing is visible |
| `for_each_batch` | at least once; effectively once if the function is idempotent by its sequence |
| `mqtt` | at least once |
| `for_each` | at least once |
| `console` | at least once |
"""

from tidewheel.sinks.base import Sink
from tidewheel.sinks.collect import collect
from tidewheel.sinks.console import console
from tidewheel.sinks.delta import delta
from tidewheel.sinks.discard import discard
from tidewheel.sinks.files import files
from tidewheel.sinks.for_each import for_each
from tidewheel.sinks.for_each_batch import for_each_batch
from tidewheel.sinks.kafka import kafka
from tidewheel.sinks.mqtt import mqtt
from tidewheel.sinks.nats import nats
from tidewheel.sinks.postgres import postgres

__all__ = [
    "Sink",
    "collect",
    "console",
    "delta",
    "discard",
    "files",
    "for_each",
    "for_each_batch",
    "kafka",
    "mqtt",
    "nats",
    "postgres",
]
