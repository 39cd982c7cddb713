"""One stored state of each operator whose state may be of another type now, read as the program would read it.

Manifests have what programs told of their states. What a program tells by a default alone, its states need not be; a type that
was declared before, or is declared now, is compared with what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._engine.commit import operator_infos
from tidewheel._engine.evolve import state_of
from tidewheel._engine.plan import Plan
from tidewheel._engine.state_type import by_default, check_undeclared, declared_fields
from tidewheel._engine.stored_names import renamed
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._state.codec import codec_named
from tidewheel.errors import StateError

_MSGPACK = "msgpack"
_FILES = 8
"""In how many state files a sample is looked for: an operator may have no state, and a job thousands of files."""


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
        sample = reader.sample(name, _FILES) if _is_due(spec, was, now) else None
        if sample is not None:
            _check_sample(node.name, spec, was, now, *sample)


def _is_due(spec: StateSpec, was: OperatorInfo, now: OperatorInfo) -> bool:
    """Tell whether stored states may be none of the program's, for all that is told of them."""
    if spec.type is not None:
        return (was.kind, was.fields) != (now.kind, now.fields)
    # Nothing is told by the same kind of operator: an older Tidewheel did not tell what this default tells.
    return was.kind != now.kind if not was.fields else not by_default(was.fields)


def _check_sample(operator: str, spec: StateSpec, was: OperatorInfo, now: OperatorInfo, key: Any, raw: bytes) -> None:
    if spec.type is None:
        check_undeclared(operator, declared_fields(None, codec_named(_MSGPACK).decode(raw)), was.fields, now.fields)
        return
    try:
        spec.resolved_codec().decode(raw)
    except StateError as error:
        raise StateError(f"operator {operator!r}, key {key!r}: {error}; or give the operator a new name") from None
