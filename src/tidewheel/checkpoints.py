"""Checkpoints for programs that drive their own loop, and the manifest that every commit is."""

from tidewheel._checkpoint.manager import CheckpointManager
from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.seed_layout import from_seed, to_seed
from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints

__all__ = [
    "CheckpointId",
    "CheckpointManager",
    "CheckpointStore",
    "Manifest",
    "StreamCheckpoints",
    "from_seed",
    "to_seed",
]
