"""The result of a test run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._core.text import names_there
from tidewheel._engine.stopped_job import states
from tidewheel._program.job import Job
from tidewheel._state.codec import StateCodec, codec_named
from tidewheel._storage import open_store


class _ByName(dict[str, Any]):
    """A dict whose error for a missing name lists the existing names."""

    def __init__(self, what: str, job: str, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self._noun, self._job = what, job

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"job {self._job!r} has no {self._noun} {name!r}; {names_there(name, self)}")


@dataclass(frozen=True)
class Result:
    """The output of each sink, the state of each step by key, and the newest commit."""

    outputs: dict[str, list[dict[str, Any]]]
    states: dict[str, dict[Any, Any]]
    checkpoint: Manifest


def result_of(job: Job, outputs: dict[str, list[dict[str, Any]]]) -> Result:
    """Read a job's state as of its newest commit."""
    store = open_store(job.state)
    newest = StreamCheckpoints(store, job.name).latest()
    assert newest is not None, "a run starts with a claim, so there is a commit"
    codecs = _codecs(job)
    held = {
        table: {key: codecs.get(table, codec_named("msgpack")).decode(raw) for key, raw in keys.items()}
        for table, keys in states(store, newest).items()
    }
    return Result(_ByName("sink", job.name, outputs), _ByName("state of a step", job.name, held), newest)


def _codecs(job: Job) -> dict[str, StateCodec]:
    """Return the codec of each step whose program chooses one."""
    specs = ((node.name, getattr(node.operator, "state", None)) for node in job.graph.nodes if node.operator.stateful)
    return {name: spec.resolved_codec() for name, spec in specs if spec is not None}
