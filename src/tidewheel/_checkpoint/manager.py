"""Checkpoints for a program with its own loop: it reports its events, and checkpoints are made when due.

The checkpoints and their store are those of a job's commits; this module only counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.store import CheckpointStore
from tidewheel._time.duration import Duration, seconds_or_none
from tidewheel.errors import ConfigError, StateError

Fill = Callable[[Manifest], Manifest]
"""Receives a checkpoint with its id, count and epoch, and returns it with the program's additions."""


@dataclass
class _Progress:
    """The current progress of one stream, and the progress since its newest checkpoint."""

    sequence: int | None = None
    event_count: int = 0
    epoch: int | None = None
    events: int = 0
    """Events since the newest checkpoint, like the batches."""
    batches: int = 0
    since: int | None = None
    """The time of the newest checkpoint, or of the first event."""


class CheckpointManager:
    """Makes checkpoints by events, batches or time, whichever comes first, for each stream separately.

    `every_events` and `every_batches` are numbers, `every` is a duration such as "30 s".

    Call `recover` at the start and continue with the first event after the checkpoint it returns. A stream that was not
    recovered still starts after its newest checkpoint: an event that the checkpoint includes is rejected.

    >>> manager = CheckpointManager(CheckpointStore.open("memory:docs-manager"), every_events=2)
    >>> for number in (7, 8, 12):
    ...     taken = manager.on_event("orders", number, fill=lambda s: s.replace(metadata={"at": str(number)}))
    >>> manager.recover("orders").metadata
    {'at': '8'}
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        every_events: int | None = None,
        every_batches: int | None = None,
        every: Duration | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        limits = {"events": every_events, "batches": every_batches, "seconds": seconds_or_none(every, "every=")}
        if set(limits.values()) == {None}:
            raise ConfigError(
                "a checkpoint manager needs a trigger: every_events=, every_batches= or every=, such as '30 s'"
            )
        for name, limit in limits.items():
            if limit is not None and limit <= 0:
                raise ConfigError(f"the trigger by {name} must be above 0, not {limit}")
        self.store = store
        self._every_events, self._every_batches, self._every_seconds = limits.values()
        self.total_checkpoints = 0
        """The number of checkpoints made by this manager."""
        self._clock = clock
        self._streams: dict[str, _Progress] = {}

    def recover(self, stream_id: str) -> Manifest | None:
        """Return the stream's newest checkpoint, or `None`, and continue counting from it.

        Continue with the first event after its `sequence`; do not pass the last event again.
        """
        state = self.store.latest(stream_id)
        self._streams[stream_id] = _Progress()
        if state is not None:
            self._streams[stream_id] = _Progress(
                state.sequence, state.event_count, state.epoch, since=state.id.created_at
            )
        return state

    def on_event(
        self, stream_id: str, sequence: int, epoch: int | None = None, *, fill: Fill | None = None
    ) -> Manifest | None:
        """Count one processed event; return the checkpoint if one was due.

        Sequences must grow, with or without gaps, from any start. `fill` is called only when a checkpoint is made.
        """
        return self._advance(stream_id, sequence, 1, 0, epoch, fill)

    def on_batch(
        self,
        stream_id: str,
        sequence: int | None,
        events: int,
        epoch: int | None = None,
        *,
        fill: Fill | None = None,
    ) -> Manifest | None:
        """Count one processed batch; `sequence` is that of its last event, `None` if the batch is empty."""
        if events < 0 or (sequence is None) != (events == 0):
            raise ConfigError(
                f"a batch of stream {stream_id!r} was reported with {events} events and the last sequence "
                f"{sequence}; an empty batch has none, any other has one"
            )
        return self._advance(stream_id, sequence, events, 1, epoch, fill)

    def on_tick(self, stream_id: str, *, fill: Fill | None = None) -> Manifest | None:
        """Make a checkpoint if one is due by time, even if no event came."""
        return self._advance(stream_id, None, 0, 0, None, fill)

    def checkpoint(self, stream_id: str, *, fill: Fill | None = None) -> Manifest | None:
        """Make a checkpoint now; return `None` if no event came since the last one."""
        progress = self._progress(stream_id)
        if progress.events == 0 or progress.sequence is None:
            return None
        now = self._clock()
        state = Manifest(
            CheckpointId(stream_id, progress.sequence, now),
            event_count=progress.event_count,
            epoch=progress.epoch,
        )
        filled = state if fill is None else fill(state)
        if filled.id != state.id:
            raise ConfigError(f"`fill` must keep the checkpoint's id, {state.id}; it returned {filled.id}")
        self.store.save(filled)
        progress.events, progress.batches, progress.since = 0, 0, now
        self.total_checkpoints += 1
        return filled

    def _advance(
        self,
        stream_id: str,
        sequence: int | None,
        events: int,
        batches: int,
        epoch: int | None,
        fill: Fill | None,
    ) -> Manifest | None:
        progress = self._progress(stream_id)
        if sequence is not None and progress.sequence is not None and sequence <= progress.sequence:
            raise StateError(
                f"event {sequence} of stream {stream_id!r} does not come after {progress.sequence}, which was "
                "already counted; after a restart, continue with the first event after the recovered checkpoint"
            )
        now = self._clock()
        progress.sequence = progress.sequence if sequence is None else sequence
        progress.event_count += events
        progress.events += events
        progress.batches += batches
        progress.epoch = max((each for each in (progress.epoch, epoch) if each is not None), default=None)
        progress.since = now if progress.since is None else progress.since
        return self.checkpoint(stream_id, fill=fill) if self._is_due(progress, now) else None

    def _is_due(self, progress: _Progress, now: int) -> bool:
        """Return whether a limit is reached. Without an event since the newest checkpoint, another would only repeat it."""
        reached = (
            (progress.events, self._every_events),
            (progress.batches, self._every_batches),
            ((now - (now if progress.since is None else progress.since)) / 1e9, self._every_seconds),
        )
        return progress.events > 0 and any(limit is not None and count >= limit for count, limit in reached)

    def _progress(self, stream_id: str) -> _Progress:
        if stream_id not in self._streams:
            self.recover(stream_id)
        return self._streams[stream_id]
