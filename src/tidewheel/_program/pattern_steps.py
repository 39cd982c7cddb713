"""PatternSteps: find sequences of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel._operators.keyed.match import Match, MatchOperator, Pattern
from tidewheel._program.arguments import checked_function
from tidewheel._program.window_steps import WindowSteps
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._values.type_variables import Key, Value
from tidewheel.errors import GraphError

if TYPE_CHECKING:
    from tidewheel._program.side_outputs import WindowedStream


class PatternSteps(WindowSteps[Key, Value]):
    """The step of a keyed stream that finds patterns."""

    def match(
        self, name: str, pattern: Pattern, *, within: Duration, overlap: bool = True, incomplete: bool = False
    ) -> WindowedStream[Key, Match[Value], Value]:
        """Find a pattern in the messages of each key, in the order of their times; emit a `Match` for each.

        A message is handled when the clock passes its time. Messages that come later are in the stream `late` of the
        result. Every message that meets the first condition begins a match, which takes the first message that fits each
        further step.

        - `pattern`: a `Pattern`.
        - `within`: the maximum time from the first to the last message of a match.
        - `overlap`: whether matches can share messages. False: a match discards the others that its key has begun.
        - `incomplete`: also emit what has matched when the time limit passes before the last step, with `complete` False.

        >>> from tidewheel import Job, Pattern, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("unpaid")
        >>> rows = [(7, "order", 1), (7, "paid", 5), (8, "order", 2)]
        >>> events = [dict(zip(("id", "kind", "at"), row)) for row in rows]
        >>> timed = job.source("in", sources.iterable(events)).event_time("at", unit="ns", max_delay="0 s")
        >>> paid = Pattern("order", lambda event, matched: event.kind == "order").then(
        ...     "payment", lambda event, matched: event.kind == "paid")
        >>> matches = timed.key_by("by-id", "id").match("paid", paid, within="10 ns", incomplete=True)
        >>> _ = matches.map("state", lambda match: match.complete).sink("out", sinks.collect())
        >>> sorted((row["id"], row["value"]) for row in run_in_memory(job).outputs["out"])
        [(7, True), (8, False)]
        """
        from tidewheel._program.side_outputs import WindowedStream

        if not isinstance(pattern, Pattern):
            raise GraphError(f"step {name!r}: match takes a Pattern, not {type(pattern).__name__}")
        for step in pattern.steps:
            for condition in (step.condition, step.without):
                if condition is not None:
                    checked_function(name, condition, "value", "matched values")
        last = pattern.steps[-1]
        if last.least != last.most:
            raise GraphError(
                f"step {name!r}: {last.name!r} is the last step of the pattern, which is complete with its least number of "
                f"messages; write times={last.least}"
            )
        nanos = nanoseconds(within, f"step {name!r}: within=", 1)
        shape = self.job.graph.shape(self.port)
        return WindowedStream(self.job, self._then(name, MatchOperator(pattern, nanos, overlap, incomplete, shape)))
