"""Checkpoints for programs that drive their own loop, the manifest that every commit is, and migration from Spark."""

from tidewheel._checkpoint.manager import CheckpointManager
from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.seed_layout import from_seed, to_seed
from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints
from tidewheel._imports.migration import FromSpark, SparkState

__all__ = [
    "CheckpointId",
    "CheckpointManager",
    "CheckpointStore",
    "FromSpark",
    "Manifest",
    "SparkState",
    "StreamCheckpoints",
    "from_seed",
    "to_seed",
]
