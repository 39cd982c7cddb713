"""One stored state of each operator whose state may be of another type now, read as the program would read it.

Manifests have what programs told of their states. A program that told nothing, or that left its values as they were and now
declares their type, is found out by what it stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._engine.commit import operator_infos
from tidewheel._engine.evolve import state_of
from tidewheel._engine.plan import Plan
from tidewheel._engine.state_type import check_fields, declared_fields
from tidewheel._engine.stored_names import renamed
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._state.codec import codec_named
from tidewheel.errors import StateError

_MSGPACK = "msgpack"


def check_samples(plan: Plan, reader: StateReader, aliases: Mapping[str, Sequence[str]]) -> None:
    """Raise a `StateError` where an operator's program says something else of its state than before, and stored state differs."""
    stored, infos = reader.manifest.operators, operator_infos(plan)
    former = renamed(stored, infos, aliases)
    for node in plan.nodes:
        spec, name = state_of(node), former.get(node.name, node.name)
        was = stored.get(name)
        if (
            spec is None
            or spec.codec is not None
            or was is None
            or (was.codec, was.version) != (_MSGPACK, spec.version)
        ):
            continue
        now = infos[node.name]
        if (was.kind, was.fields) != (now.kind, now.fields):
            for key, raw in reader.raw(name):
                _check_sample(node.name, spec, key, raw)
                break


def _check_sample(operator: str, spec: StateSpec, key: Any, raw: bytes) -> None:
    if spec.type is None:
        value = codec_named(_MSGPACK).decode(raw)
        check_fields(operator, declared_fields(None, value), declared_fields(None, spec.default))
        return
    try:
        spec.resolved_codec().decode(raw)
    except StateError as error:
        raise StateError(f"operator {operator!r}, key {key!r}: {error}; or give the operator a new name") from None
