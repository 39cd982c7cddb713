"""Streams with a second output: the late messages of a clock or a window, the broken messages of a codec."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic

from tidewheel._operators.graph import Port
from tidewheel._operators.stateless.decode import DEAD
from tidewheel._operators.timestamps.generate_epochs import LATE
from tidewheel._program.keyed_stream import KeyedStream
from tidewheel._program.stream import Stream
from tidewheel._values import Row
from tidewheel._values.type_variables import Key, Late, Value


class _Unpacked:
    """Allow programs of version 0.1 to unpack the two outputs of a step as a pair."""

    if not TYPE_CHECKING:
        # Not visible to type checkers, so that they report the old form.
        _second: str

        def __iter__(self) -> Iterator[Any]:
            step = self.job.graph.nodes[self.port.node].operator.step
            warnings.warn(
                f"unpacking the streams of {step} is deprecated and ends with version 0.3: the step returns the main "
                f"stream, and the other one is its attribute .{self._second}",
                DeprecationWarning,
                stacklevel=2,
            )
            yield from (self, getattr(self, self._second))

        def __getitem__(self, number: int) -> Any:
            return tuple(self)[number]


class TimedStream(_Unpacked, Stream[Value]):
    """The messages that are on time; late messages are in `late`."""

    _second = "late"

    @property
    def late(self) -> Stream[Value]:
        """The late messages, unchanged."""
        return Stream(self.job, Port(self.port.node, LATE))


class KeyedTimedStream(TimedStream[Value], KeyedStream[Key, Value], Generic[Key, Value]):
    """The messages that are on time, with their keys; late messages are in `late`."""

    @property
    def late(self) -> KeyedStream[Key, Value]:
        """The late messages, unchanged."""
        return KeyedStream(self.job, Port(self.port.node, LATE))


class WindowedStream(KeyedStream[Key, Value], Generic[Key, Value, Late]):
    """The results of windows; messages that are too late for any window are in `late`.

    >>> from tidewheel import Job, count, sinks, sources, tumbling
    >>> from tidewheel.testing import run_in_memory
    >>> job = Job("late")
    >>> sales = job.source("in", sources.iterable([{"shop": "a", "at": at} for at in (9, 35, 36, 8)], batch_size=1))
    >>> timed = sales.event_time("at", unit="ns", max_delay="0 s")
    >>> windows = timed.union("all", timed.late).key_by("by-shop", "shop").window("tens", tumbling("10 ns"), sold=count())
    >>> _ = windows.sink("out", sinks.collect())
    >>> _ = windows.late.sink("late", sinks.collect())
    >>> run_in_memory(job).outputs["late"]
    [{'shop': 'a', 'at': 8}]
    """

    @property
    def late(self) -> KeyedStream[Key, Late]:
        """The late messages, unchanged."""
        late: KeyedStream[Any, Any] = KeyedStream(self.job, Port(self.port.node, LATE))
        return late


class DecodedStream(_Unpacked, Stream[Value]):
    """The records that a codec decoded; messages that failed to decode are in `broken`."""

    _second = "broken"

    @property
    def broken(self) -> Stream[Row]:
        """The messages that failed to decode, unchanged, with a column `error`."""
        return Stream(self.job, Port(self.port.node, DEAD))


class KeyedDecodedStream(DecodedStream[Value], KeyedStream[Key, Value], Generic[Key, Value]):
    """The records that a codec decoded, with their keys; messages that failed to decode are in `broken`."""

    @property
    def broken(self) -> KeyedStream[Key, Row]:
        """The messages that failed to decode, unchanged, with a column `error`."""
        return KeyedStream(self.job, Port(self.port.node, DEAD))
