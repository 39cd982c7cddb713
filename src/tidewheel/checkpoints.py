"""Checkpoints for programs that drive their own loop, and the manifest that every commit is."""

from tidewheel._checkpoint.manager import CheckpointManager
from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints

__all__ = ["CheckpointId", "CheckpointManager", "CheckpointStore", "Manifest", "StreamCheckpoints"]
