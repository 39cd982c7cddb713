"""Checkpoints: what a commit says, its bytes, where it is kept, and what may be let go."""

from tidewheel.checkpoint.manager import CheckpointManager
from tidewheel.checkpoint.manifest import CheckpointId, CheckpointState
from tidewheel.checkpoint.store import CheckpointStore, StreamCheckpoints

__all__ = ["CheckpointId", "CheckpointManager", "CheckpointState", "CheckpointStore", "StreamCheckpoints"]
