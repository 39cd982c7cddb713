"""inbox: the events that routers sent to the shards of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.schema import arrow_schema, declared_schema, spark_schema
from tidewheel._connectors.source import Source, Unread
from tidewheel._core.urls import Url
from tidewheel._storage import absolute
from tidewheel._values import ROW, Shape
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel.fleet._inbox.stream import InboxReader

RAW_SCHEMA = "key string, value string, shard int, position long, producer string, number long"
"""The columns without a declared type: `value` is the JSON of the payload, `key` the key as text."""

_BLOCKS = 2000
"""The maximum number of blocks that are read to count the backlog; beyond that, the count is too low."""


def inbox(
    url: str,
    *,
    schema: Any = None,
    shards: Iterable[int] | None = None,
    start: Mapping[int, int] | None = None,
    max_events: int | None = None,
    partitions: int = 4,
    dead_letters: str | None = None,
) -> Source:
    """Read the events of an inbox.

    - `schema`: the columns, unless the program declares them with `type=`. Missing fields of a payload are null, and other
      fields are ignored. With a declared plain type, payloads are such values. Without a declaration, the columns are key,
      value (JSON), shard, position, producer and number.
    - `shards`: the shards to read; by default all.
    - `start`: the first positions by shard; by default the oldest events.
    - `max_events`: the approximate size of a batch, which ends between blocks of up to 5,000 events.
    - `partitions`: the number of tasks that read. One task reads the events of a shard, in order. A batch that runs again has
      the same events.
    - `dead_letters`: the URL of another inbox for events that do not match the declared columns. Without it, such an event
      stops the job, and the error names the event and the command to skip it.
    """
    if max_events is not None and max_events < 1:
        raise ConfigError(f"max_events, the number of events in a batch, must be at least 1, not {max_events}")
    if partitions < 1:
        raise ConfigError(f"partitions, the number of tasks that read, must be at least 1, not {partitions}")
    return InboxSource(
        absolute(url),
        schema,
        None if shards is None else sorted(set(shards)),
        dict(start or {}),
        max_events,
        partitions,
        dead_letters=None if dead_letters is None else absolute(dead_letters),
    )


class InboxSource(Source):
    """The inbox at a URL; offsets are positions by shard."""

    shape = ROW
    kind = "inbox"

    def __init__(
        self,
        url: str | Url,
        schema: Any,
        shards: list[int] | None,
        start: dict[int, int],
        max_events: int | None,
        partitions: int,
        plain: bool = False,
        dead_letters: str | Url | None = None,
    ) -> None:
        """Take the settings; the inbox is opened when the job starts."""
        self.url, self.schema, self.shards, self.start = Url(url), schema, shards, start
        self.max_events, self.partitions, self.plain = max_events, partitions, plain
        self.dead_letters = None if dead_letters is None else Url(dead_letters)

    def declared(self, shape: Shape) -> Source:
        """Use the columns that the program declares, unless `schema` was given."""
        if self.schema is not None or shape.schema() is None:
            return self
        plain = shape.kind == "scalar"
        return self._with(schema=shape.schema(), plain=plain)

    def reading(self, url: str, start: Mapping[int, int]) -> InboxSource:
        """Return this source for some shards of an inbox, each from a position; 0 is the oldest one."""
        known = {shard: position for shard, position in start.items() if position}
        return self._with(url=url, shards=sorted(start), start=known)

    def _with(self, **changes: Any) -> InboxSource:
        return InboxSource(**{**self.__dict__, **changes})

    def describe(self) -> str:
        """Return a short description for messages."""
        return f"inbox {self.url}"

    def unread(self, position: Position) -> Mapping[str, Unread]:
        return unread_events(self.url, position)

    def open(self) -> InboxReader:
        from tidewheel.fleet._inbox.payloads import Payload
        from tidewheel.fleet._inbox.stream import InboxReader, InboxSettings

        payload: Payload = "raw" if self.schema is None else "plain" if self.plain else "columns"
        settings = InboxSettings(
            self.url, self.shards, self.start, self.max_events, self.partitions, payload, self.dead_letters
        )
        declared = declared_schema(RAW_SCHEMA if self.schema is None else self.schema)
        # Use the types of Spark, so that a program sees the same values from any source.
        return InboxReader(settings, arrow_schema(spark_schema(declared)))


def unread_events(url: str | Url, position: Position) -> dict[str, Unread]:
    """Return the backlog of an inbox at a position, by shard."""
    from tidewheel.fleet._inbox import lag, open_inbox
    from tidewheel.fleet._inbox.offsets import positions_of

    positions = positions_of(position)
    with open_inbox(url) as inbox:
        end = inbox.end(list(positions))
        events, _ = lag(inbox, positions, _BLOCKS)
    return {str(shard): Unread(events[shard], positions[shard], end[shard]) for shard in positions}
