"""WindowedStream: the results of windows, and what came too late for them."""

from __future__ import annotations

from typing import Any, Generic

from tidewheel._operators.graph import Port
from tidewheel._operators.timestamps.generate_epochs import LATE
from tidewheel._program.keyed_stream import KeyedStream
from tidewheel._values.type_variables import Key, Late, Value


class WindowedStream(KeyedStream[Key, Value], Generic[Key, Value, Late]):
    """The results of windows, and beside them the messages that came too late for any.

    What follows a step is an ordinary `KeyedStream`: only the windows themselves have late messages beside them.

    >>> from tidewheel import Job, count, sinks, sources, tumbling
    >>> from tidewheel.testing import run_in_memory
    >>> job = Job("late")
    >>> sales = job.source("in", sources.iterable([{"shop": "a", "at": at} for at in (9, 35, 36, 8)], batch_size=1))
    >>> on_time, late = sales.assign_timestamps("at", "at", unit="ns").limit_out_of_orderness("bound", "0 s")
    >>> windows = on_time.union("all", late).key_by("by-shop", "shop").window("tens", tumbling("10 ns"), sold=count())
    >>> _ = windows.sink("out", sinks.collect())
    >>> _ = windows.late.sink("late", sinks.collect())
    >>> run_in_memory(job).outputs["late"]
    [{'shop': 'a', 'at': 8}]
    """

    @property
    def late(self) -> KeyedStream[Key, Late]:
        """The messages that came too late, as they were."""
        late: KeyedStream[Any, Any] = KeyedStream(self.job, Port(self.port.node, LATE))
        return late
