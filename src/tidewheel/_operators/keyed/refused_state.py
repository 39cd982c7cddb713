"""Find the record whose new state cannot be stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidewheel._operators.base import Context
from tidewheel._state.key_batch import KeyBatch, RefusedState
from tidewheel._state.keyed_state import KeyedState
from tidewheel._values import Batch
from tidewheel.errors import StepError


def keep_states(
    state: KeyedState,
    key_batch: KeyBatch,
    places: Callable[[], Sequence[int]],
    batch: Batch,
    context: Context,
    handle: Callable[[int, Any], Any],
) -> None:
    """Store the states of the keys of a batch. If one cannot be stored, raise a `StepError` that names the record.

    All states are checked at once, after the last message. If one is rejected, the messages of its key are handled again,
    one by one, starting with the previous state: `handle(position, state)` returns the state after a message. `places` has
    the index of each message's key.
    """
    try:
        state.keep(key_batch)
    except RefusedState as refusal:
        key = key_batch.keys[refusal.place]
        positions = [position for position, place in enumerate(places()) if place == refusal.place]
        position, error = _first_refused(state, key, positions, handle) or (positions[-1], refusal.error)
        if not context.keeps_rejected():
            context.reject(error, batch, position)
        # With dead letters, each state was checked after its message, so it was changed after that check.
        raise StepError(
            f"step {context.operator!r}, key {key!r}: its state cannot be stored: {error}"
        ) from refusal.error


def _first_refused(
    state: KeyedState, key: Any, positions: list[int], handle: Callable[[int, Any], Any]
) -> tuple[int, Exception] | None:
    current = state.committed(key)
    for position in positions:
        try:
            current = handle(position, state.default() if current is None else current)
            if current is not None:
                state.codec.encode(current)
        except Exception as error:
            return position, error
    return None
