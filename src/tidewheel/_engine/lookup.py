"""Look-ups in a job's committed state, for the job's own process: typed, and safe from several threads."""

from __future__ import annotations

import threading
from typing import Any

from tidewheel._checkpoint.state_files import range_reader
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.savepoint import find
from tidewheel._checkpoint.tools.state_reader import Found, StateReader
from tidewheel._engine.evolve import state_of
from tidewheel._operators.graph import Graph
from tidewheel._state.codec import StateCodec
from tidewheel._state.key_lookup import KeyLookup
from tidewheel._storage import open_store
from tidewheel.errors import GraphError


class Lookup:
    """Answers with the last committed value of a key. It reads the store alone, so a batch never waits for it."""

    def __init__(self, job: str, state: str, graph: Graph) -> None:
        """Take the job's name, its state URL, and its graph, for the types of its state."""
        self.state = state
        self._graph = graph
        self._store = open_store(state)
        self._checkpoints = StreamCheckpoints(self._store, job)
        self._lock = threading.Lock()
        self._keys = KeyLookup(range_reader(self._store, job))

    def get(self, step: str, key: Any) -> Found:
        """Return the value, or that there is none; `NotFound` before the first commit."""
        codec = self._codec(step)
        with self._lock:
            manifest = find(self._checkpoints)
        if step not in manifest.operators:
            # The program has the step, but no commit has its state yet.
            return Found(step, key, False, None, manifest.sequence)
        return StateReader(self._store, manifest, self._keys).get(step, key, codec)

    def has_commit(self) -> bool:
        """Whether there is anything to look up in."""
        with self._lock:
            return self._checkpoints.latest() is not None

    def _codec(self, step: str) -> StateCodec | None:
        """Return the declared codec of a step; None where only the checkpoint names one."""
        stateful = {node.name: node for node in self._graph.nodes if node.operator.stateful}
        if step not in stateful:
            there = ", ".join(map(repr, stateful)) or "none"
            raise GraphError(f"the job has no step {step!r} with state; there are {there}")
        spec = state_of(stateful[step])
        return None if spec is None else spec.resolved_codec()
