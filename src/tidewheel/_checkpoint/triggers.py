"""Decide when a checkpoint is due."""

from __future__ import annotations

import msgspec

from tidewheel.errors import ConfigError


class Triggers(msgspec.Struct, frozen=True):
    """Conditions for a checkpoint, each counted since the last one; at least one must be set."""

    events: int | None = None
    batches: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        limits = {name: getattr(self, name) for name in self.__struct_fields__}
        if all(value is None for value in limits.values()):
            raise ConfigError(
                "a checkpoint manager needs a trigger: every_events=, every_batches= or every=, such as '30 s'"
            )
        for name, value in limits.items():
            if value is not None and value <= 0:
                raise ConfigError(f"the trigger by {name} must be above 0, not {value}")


class Progress(msgspec.Struct, frozen=True):
    """The current progress of one stream, and its progress at the last checkpoint."""

    sequence: int | None = None
    """The sequence of the last event; `None` before the first."""
    event_count: int = 0
    epoch: int | None = None
    events: int = 0
    """Events since the last checkpoint, like the batches."""
    batches: int = 0
    since: int | None = None
    """The time of the last checkpoint, or of the first event."""

    def advanced(self, now: int, *, sequence: int | None, events: int, batches: int, epoch: int | None) -> Progress:
        """Return the progress after more events; an epoch below the current one has no effect."""
        epochs = [each for each in (self.epoch, epoch) if each is not None]
        return Progress(
            sequence=self.sequence if sequence is None else sequence,
            event_count=self.event_count + events,
            epoch=max(epochs, default=None),
            events=self.events + events,
            batches=self.batches + batches,
            since=now if self.since is None else self.since,
        )

    def checkpointed(self, at: int) -> Progress:
        """Return the progress after a checkpoint made `at` this time."""
        return msgspec.structs.replace(self, events=0, batches=0, since=at)


def due(triggers: Triggers, progress: Progress, now: int) -> bool:
    """Return whether a checkpoint is due. Never due without an event since the last, which it would only repeat."""
    if progress.events == 0 or progress.since is None:
        return False
    return (
        (triggers.events is not None and progress.events >= triggers.events)
        or (triggers.batches is not None and progress.batches >= triggers.batches)
        or (triggers.seconds is not None and now - progress.since >= triggers.seconds * 1e9)
    )
