"""What a test run left behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._engine.stopped_job import states
from tidewheel._program.job import Job
from tidewheel._state.codec import StateCodec, codec_named
from tidewheel._storage import open_store


@dataclass(frozen=True)
class Result:
    """The output of each sink, the state of each operator by key, and the newest commit."""

    outputs: dict[str, list[dict[str, Any]]]
    states: dict[str, dict[Any, Any]]
    checkpoint: Manifest


def result_of(job: Job, outputs: dict[str, list[dict[str, Any]]]) -> Result:
    """Read a job's state as of its newest commit."""
    store = open_store(job.state)
    newest = StreamCheckpoints(store, job.name).latest()
    assert newest is not None, "a run begins with a claim, so there is a commit"
    codecs = _codecs(job)
    held = {
        table: {key: codecs.get(table, codec_named("msgpack")).decode(raw) for key, raw in keys.items()}
        for table, keys in states(store, newest).items()
    }
    return Result(outputs, held, newest)


def _codecs(job: Job) -> dict[str, StateCodec]:
    """Return the codec of each operator whose program chooses one."""
    specs = ((node.name, getattr(node.operator, "state", None)) for node in job.graph.nodes if node.operator.stateful)
    return {name: spec.resolved_codec() for name, spec in specs if spec is not None}
