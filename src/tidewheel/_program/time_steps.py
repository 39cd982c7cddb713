"""TimeSteps: the steps that assign timestamps and advance the job's clock."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidewheel._operators.logic import Message
from tidewheel._operators.timestamps.assign_timestamps import AssignTimestamps
from tidewheel._operators.timestamps.generate_epochs import GenerateEpochs
from tidewheel._operators.timestamps.inspect_frontier import InspectFrontier
from tidewheel._program.arguments import checked_duration, checked_function
from tidewheel._program.steps import Steps
from tidewheel._time.duration import UNITS, Duration, Unit, nanoseconds
from tidewheel._values.type_variables import Value
from tidewheel.errors import GraphError

if TYPE_CHECKING:
    from tidewheel._program.side_outputs import TimedStream
    from tidewheel._program.stream import Stream

IDLE_AFTER = datetime.timedelta(minutes=1)
"""How long an input of the clock can be without data before it no longer holds back the clock."""
MAX_AHEAD = datetime.timedelta(days=1)
"""How far a message's timestamp can be ahead of its batch's time before the message goes to the late stream."""


class TimeSteps(Steps[Value]):
    """Steps of a stream that assign timestamps and advance the job's clock."""

    def event_time(
        self,
        time: str | Callable[[Value], int | datetime.datetime],
        *,
        max_delay: Duration,
        unit: Unit | None = None,
        idle_after: Duration | None = IDLE_AFTER,
        advance_after: Duration | None = None,
        partition: str | Callable[[Value], Any] | None = None,
        max_ahead: Duration | None = MAX_AHEAD,
        name: str = "event-time",
    ) -> TimedStream[Value]:
        """Use the time at which messages happened; return the messages that are on time.

        Late messages are in the stream `late` of the result. This is `assign_timestamps` followed by
        `limit_out_of_orderness`, as the two steps `NAME.timestamps` and `NAME`.

        - `time`: a column, or a function of the value that returns a `datetime` or an integer.
        - `max_delay`: how far a message can be behind the latest one: a `timedelta`, or text such as "5 minutes".
        - `unit`: the unit of integer times: "s", "ms", "us" or "ns", as in `assign_timestamps`.
        - `idle_after`, `advance_after`, `partition`, `max_ahead`: as in `generate_epochs`.
        - `name`: required if the job has several such steps.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("bound")
        >>> clicks = job.source("in", sources.iterable([{"at": 9}, {"at": 7}, {"at": 3}], batch_size=1))
        >>> timed = clicks.event_time("at", unit="ns", max_delay="4 ns")
        >>> _ = timed.sink("on-time", sinks.collect())
        >>> _ = timed.late.sink("late", sinks.collect())
        >>> run_in_memory(job).outputs
        {'on-time': [{'at': 9}, {'at': 7}], 'late': [{'at': 3}]}
        """
        return self.assign_timestamps(f"{name}.timestamps", time, unit=unit).limit_out_of_orderness(
            name,
            max_delay,
            idle_after=idle_after,
            advance_after=advance_after,
            partition=partition,
            max_ahead=max_ahead,
        )

    def assign_timestamps(
        self,
        name: str,
        time: str | Callable[[Value], int | datetime.datetime],
        *,
        unit: Unit | None = None,
        max_ahead: Duration | None = None,
    ) -> Stream[Value]:
        """Set the timestamp of each message: the time at which it happened.

        - `time`: a column, or a function of the value. A time is a timestamp, in Python a `datetime`; without a time
          zone it is taken as UTC. A time can also be an integer in `unit`. A message whose time does not fit in 64 bits
          of nanoseconds, such as the year 9999, is rejected.
        - `unit`: the unit of integer times since 1970 UTC: "s", "ms", "us" or "ns". The stream's times are then
          integers in nanoseconds everywhere: `start` and `end` of windows, `message.time`, timers. Without `unit`,
          times are timestamps; an integer is taken as nanoseconds if that gives a plausible year, and is otherwise
          rejected with a suggested unit.
        - `max_ahead`: a `timedelta`, or text such as "1 hour". A message whose timestamp is further ahead of the
          batch's time is rejected. None rejects no message. `limit_out_of_orderness` sends such messages to the late
          stream instead.

        >>> from datetime import datetime, timedelta
        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("sales")
        >>> sales = job.source("in", sources.iterable([{"shop": "a", "at": datetime(2026, 1, 1, 9)}]))
        >>> timed = sales.assign_timestamps("sold", lambda sale: sale.at + timedelta(hours=1)).key_by("by-shop", "shop")
        >>> _ = timed.stateful_op("hour", lambda message, _, output: output.emit(message.time.hour)).sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'shop': 'a', 'value': 10}]
        """
        if not isinstance(time, str) and not callable(time):
            raise GraphError(f"step {name!r}: it takes a column's name or a function, not {type(time).__name__}")
        if unit is not None and unit not in UNITS:
            raise GraphError(f"step {name!r}: unit= is one of {', '.join(map(repr, UNITS))}, not {unit!r}")
        return self._same(name, AssignTimestamps(time, checked_duration("max_ahead", max_ahead), unit))

    def generate_epochs(
        self,
        name: str,
        function: Callable[[Message[Any, Value], Any], Any],
        *,
        idle_after: Duration | None = IDLE_AFTER,
        advance_after: Duration | None = None,
        partition: str | Callable[[Value], Any] | None = None,
        max_ahead: Duration | None = MAX_AHEAD,
    ) -> TimedStream[Value]:
        """Advance the job's clock; return the messages that are on time. Late messages are in the stream `late` of the result.

        The job has one clock: the minimum of its inputs' epochs. The clock never goes back, and moves after the data of
        the next batch. A message whose timestamp is not after the clock is late.

        - `function`: called with each message and the last epoch (None at first). It returns an epoch, which promises
          that no message with an equal or earlier timestamp will follow, or None. Epochs are datetimes, or nanoseconds
          where `message.time` is in nanoseconds.
        - `idle_after`: a `timedelta`, or text such as "90 s". An input that was polled for this long and had no data no
          longer holds back the clock. None means that it always does.
        - `advance_after`: a `timedelta` or text. If an input has had no data for this long, its epoch advances with the
          machine's clock, so that windows close even if the stream stays silent. Messages that arrive afterwards may be
          late. None means that the epoch does not move.
        - `partition`: a column, or a function of the value, that distinguishes several inputs in one stream, such as
          the partitions of a topic. None treats the stream as one input.
        - `max_ahead`: a `timedelta` or text; one day by default. A message whose timestamp is further ahead of the
          batch's time goes to the late stream, is counted as `name/ahead`, and does not advance the clock. None accepts
          every timestamp.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("marks")
        >>> marks = job.source("in", sources.iterable([{"at": 5}, {"at": 9}, {"at": 4}], batch_size=1))
        >>> stamped = marks.assign_timestamps("at", "at", unit="ns")
        >>> timed = stamped.generate_epochs("mark", lambda message, last: message.time)
        >>> _ = timed.sink("on-time", sinks.collect()), timed.late.sink("late", sinks.collect())
        >>> run_in_memory(job).outputs
        {'on-time': [{'at': 5}, {'at': 9}], 'late': [{'at': 4}]}
        """
        epochs = GenerateEpochs(
            checked_function(name, function, "message", "last epoch"),
            0,
            checked_duration("idle_after", idle_after),
            partition,
            checked_duration("advance_after", advance_after),
            checked_duration("max_ahead", max_ahead),
        )
        return self._epochs(name, epochs)

    def limit_out_of_orderness(
        self,
        name: str,
        bound: Duration,
        *,
        idle_after: Duration | None = IDLE_AFTER,
        advance_after: Duration | None = None,
        partition: str | Callable[[Value], Any] | None = None,
        max_ahead: Duration | None = MAX_AHEAD,
    ) -> TimedStream[Value]:
        """Advance the job's clock to the latest timestamp minus `bound`; otherwise like `generate_epochs`.

        - `bound`: how far a message can be behind the latest one, zero or more: a `timedelta`, or text such as "5 min".
        - `idle_after`, `advance_after`, `partition`, `max_ahead`: as in `generate_epochs`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("bound")
        >>> clicks = job.source("in", sources.iterable([{"at": 9}, {"at": 7}, {"at": 3}], batch_size=1))
        >>> stamped = clicks.assign_timestamps("at", "at", unit="ns")
        >>> timed = stamped.limit_out_of_orderness("bound", "4 ns")
        >>> _ = timed.sink("on-time", sinks.collect()), timed.late.sink("late", sinks.collect())
        >>> run_in_memory(job).outputs
        {'on-time': [{'at': 9}, {'at': 7}], 'late': [{'at': 3}]}
        """
        epochs = GenerateEpochs(
            None,
            nanoseconds(bound, f"step {name!r}: the bound"),
            checked_duration("idle_after", idle_after),
            partition,
            checked_duration("advance_after", advance_after),
            checked_duration("max_ahead", max_ahead),
        )
        return self._epochs(name, epochs)

    def _epochs(self, name: str, operator: GenerateEpochs) -> TimedStream[Any]:
        from tidewheel._program.keyed_stream import KeyedStream
        from tidewheel._program.side_outputs import KeyedTimedStream, TimedStream

        kind = KeyedTimedStream if isinstance(self, KeyedStream) else TimedStream
        return kind(self.job, self._then(name, operator))

    def inspect_frontier(self, name: str, function: Callable[[Any], Any]) -> Stream[Value]:
        """Call the function with each epoch; messages pass unchanged.

        - `function`: called in every task, and again if a batch is repeated. An epoch is a datetime, or nanoseconds
          since 1970 UTC where times are integers. The last epoch of a bounded run is the largest possible time.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("shown")
        >>> source = job.source("in", sources.iterable([{"at": 9}, {"at": 20}], batch_size=1))
        >>> timed = source.event_time("at", unit="ns", max_delay="0 s")
        >>> _ = timed.inspect_frontier("show", print).sink("out", sinks.collect())
        >>> _ = run_in_memory(job)
        8
        9223372036854775807
        """
        return self._same(name, InspectFrontier(checked_function(name, function, "epoch")))
