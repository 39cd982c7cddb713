"""Private names that many tests need, so that moving one changes one line."""

from tidewheel._cli import app
from tidewheel._core import faults
from tidewheel._core.keys import from_stored, shard_of, to_stored
from tidewheel._engine.stopped_job import states
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._storage import open_store

__all__ = [
    "FileRef",
    "PartRef",
    "ShardParts",
    "app",
    "faults",
    "from_stored",
    "open_store",
    "shard_of",
    "states",
    "to_stored",
]
