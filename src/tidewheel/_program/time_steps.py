"""TimeSteps: the steps that give messages timestamps and the job its clock."""

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
"""How long an input of the clock may be without data before it stops holding back the clock."""
MAX_AHEAD = datetime.timedelta(days=1)
"""How far the timestamp of a message may be ahead of its batch's time before it is set aside."""


class TimeSteps(Steps[Value]):
    """The steps of a stream that give its messages timestamps, and the job its clock."""

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

        The messages that came too late are in the stream `late` of the result. This is `assign_timestamps` followed by
        `limit_out_of_orderness`, the two steps `NAME.timestamps` and `NAME`.

        - `time`: a column, or a function of the value that returns a `datetime` or an integer.
        - `max_delay`: how far a message may be behind the latest one: a `timedelta`, or text such as "5 minutes".
        - `unit`: what integer times count: "s", "ms", "us" or "ns", as in `assign_timestamps`.
        - `idle_after`, `advance_after`, `partition`, `max_ahead`: as in `generate_epochs`.
        - `name`: give one if the job has several such steps.

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
        """Give each message a timestamp: when it happened.

        - `time`: a column, or a function of the value. A time is a timestamp, a `datetime` in Python; one without a time zone is
          taken as UTC. Or it is an integer, whose `unit` is named. A message whose time does not fit in 64 bits of
          nanoseconds, as that of the year 9999 does not, is rejected.
        - `unit`: what integers count since 1970 UTC: "s", "ms", "us" or "ns". The stream's times are then integers of
          nanoseconds wherever they come out: `start` and `end` of windows, `message.time`, timers. Without it they are
          timestamps, and an integer is taken as nanoseconds if that makes a plausible year, and else rejected, with a guess.
        - `max_ahead`: a `timedelta`, or text such as "1 hour". A message whose timestamp is further ahead of the batch's time
          is rejected. None: none is. `limit_out_of_orderness` sends such messages to the late stream.

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
            raise GraphError(f"operator {name!r}: it takes a column's name or a function, not {type(time).__name__}")
        if unit is not None and unit not in UNITS:
            raise GraphError(f"operator {name!r}: unit= is one of {', '.join(map(repr, UNITS))}, not {unit!r}")
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
        """Advance the job's clock; return the messages that are on time. The others are in the stream `late` of the result.

        The job has one clock: the least of its inputs' epochs. It never goes back, and goes out after the data of the next
        batch. A message with a timestamp up to the clock is late.

        - `function`: called with each message and the last epoch (None at first). It returns an epoch, a promise that no
          message up to it comes any more, or None. Epochs are datetimes, or nanoseconds where `message.time` is.
        - `idle_after`: a `timedelta`, or text such as "90 s". An input that was asked for data for so long, and had none, stops
          holding back the clock. None: it always holds it back.
        - `advance_after`: a `timedelta` or text. The epoch of an input with no data for so long goes on as the machine's clock
          does, so that windows close on a stream that is silent for good. What comes after all is then late. None: it stands
          still.
        - `partition`: a column, or a function of the value, that tells several inputs in one stream apart, such as the
          partitions of a topic. None: the stream is one input.
        - `max_ahead`: a `timedelta` or text, a day if not given. A message whose timestamp is further ahead of the batch's time
          goes to the late stream and is counted, as `name/ahead`: it says nothing about how far time has come. None: every
          timestamp is believed.

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
        """As `generate_epochs`, by how far a message may be behind the latest one and still be on time.

        - `bound`: that duration, from nothing on: a `timedelta`, or text such as "5 min".
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
            nanoseconds(bound, f"operator {name!r}: the bound"),
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
        """Call the function with each epoch as it passes; messages pass unchanged.

        - `function`: called in every task, and again if a batch runs again. An epoch is a datetime, or nanoseconds since 1970
          UTC where times are integers.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("shown")
        >>> source = job.source("in", sources.iterable([{"at": 9}, {"at": 20}], batch_size=1))
        >>> timed = source.event_time("at", unit="ns", max_delay="0 s")
        >>> _ = timed.inspect_frontier("show", print).sink("out", sinks.collect())
        >>> _ = run_in_memory(job)
        8
        """
        return self._same(name, InspectFrontier(checked_function(name, function, "epoch")))
