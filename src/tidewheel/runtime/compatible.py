"""Does a program fit the state that a job has? Pure checks, made before anything runs."""

from __future__ import annotations

from tidewheel.checkpoint.manifest import CheckpointState, OperatorInfo
from tidewheel.errors import StateError


def check_program(
    state: CheckpointState, operators: dict[str, OperatorInfo], n_shards: int, allow_dropped_state: bool
) -> None:
    """Raise a `StateError` where the state was made by a program that this one cannot continue."""
    job = state.id.stream_id
    if state.n_shards != n_shards:
        raise StateError(
            f"job {job!r} has n_shards={n_shards}, and its state was made with {state.n_shards}: the number is fixed for the "
            f"life of a job's state; set n_shards={state.n_shards}"
        )
    dropped = sorted(set(state.operators) - set(operators))
    if dropped and not allow_dropped_state:
        raise StateError(
            f"the state of job {job!r} names the operator {', '.join(map(repr, dropped))}, which the program lacks (it has "
            f"{', '.join(map(repr, sorted(operators))) or 'none with state'}). A name is the identity of an operator's state: "
            "give the operator its old name back, or go on without that state with --allow-dropped-state"
        )
    for name in sorted(set(state.operators) & set(operators)):
        was, now = state.operators[name], operators[name]
        if was.codec != now.codec:
            raise StateError(
                f"operator {name!r}: its state is stored as {was.codec}, and the program would read it as {now.codec}; "
                "keep the codec"
            )
        if was.kind != now.kind and "aggregate" in (was.kind, now.kind):
            raise StateError(
                f"operator {name!r} was a {was.kind} and is now a {now.kind}: their states differ; give it a new name"
            )
        if was.fingerprint != now.fingerprint:
            raise StateError(
                f"operator {name!r} kept {was.fingerprint or 'other state'} for each key, and now keeps {now.fingerprint}: one "
                "cannot be read as the other; give the changed operator a new name"
            )
