"""TimerService: fire the timers of a stateful step when they are due."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from tidewheel._core.user_code import described
from tidewheel._operators.base import Context
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.keyed_state import KeyedState
from tidewheel._state.segments import UNREADABLE
from tidewheel._state.timers import Clock, Timer, decode, encode
from tidewheel._time.duration import MAX_TIME
from tidewheel.errors import StepError


class TimerService:
    """Set and cancel timers, and call `on_timer` in the order of their times."""

    def __init__(self, logic: StatefulLogic[Any], state: KeyedState, context: Context) -> None:
        """Open the timers."""
        self.logic, self.state, self.context = logic, state, context
        self.timers = context.timers()
        self._overdue = False

    def apply(self, changes: list[tuple[Timer, bool]]) -> None:
        """Set and cancel."""
        last = self.context.last_epoch
        for timer, there in changes:
            if not there:
                self.timers.cancel(timer)
                continue
            self.timers.put(timer)
            if last is not None and timer.time <= last and timer.clock == "event":
                self._overdue = True

    def on_schedule(self, output: OutputBuffer) -> OutputBuffer:
        """Fire the timers that the time of the batch has reached, and those set for a time before the last epoch."""
        self._fire("wall", self.context.now, output)
        if self._overdue and self.context.last_epoch is not None:
            self._fire("event", self.context.last_epoch, output)
        return output

    def on_epoch(self, epoch: int, output: OutputBuffer) -> OutputBuffer:
        """Fire the timers that the epoch has reached."""
        self._fire("event", epoch, output)
        if epoch == MAX_TIME:
            # This epoch is the end of a bounded run: wall-clock timers are due too.
            self._fire("wall", MAX_TIME, output)
        return output

    def _fire(self, clock: Clock, until: int, output: OutputBuffer) -> None:
        for shard in self.context.shards_awake(self.timers):
            self._fire_shard(shard, clock, until, output)

    def _fire_shard(self, shard: int, clock: Clock, until: int, output: OutputBuffer) -> None:
        due = self.timers.due(shard, clock, until)
        if self.logic._calls_last_timer_only:
            due = self._last_of_each_key(due)
        self.state.fetch(timer.key for timer in due)
        waiting = [encode(timer) for timer in due]
        live = set(waiting)
        while waiting:
            entry = heappop(waiting)
            if entry not in live:
                continue
            live.discard(entry)
            timer = decode(entry)
            self.timers.cancel(timer)
            first = len(output.timers)
            self._call(timer, output)
            changes = output.timers[first:]
            del output.timers[first:]
            for other, there in changes:
                self.timers.put(other) if there else self.timers.cancel(other)
                if other.clock != clock or other.time > until:
                    continue
                if not there:
                    live.discard(encode(other))
                elif until != MAX_TIME and encode(other) not in live:
                    live.add(encode(other))
                    heappush(waiting, encode(other))

    def _last_of_each_key(self, due: list[Timer]) -> list[Timer]:
        """Return the last timer of each key, and cancel those before it."""
        last = {timer.key: timer for timer in due}
        for timer in due:
            if timer is not last[timer.key]:
                self.timers.cancel(timer)
        return list(last.values())

    def _call(self, timer: Timer, output: OutputBuffer) -> None:
        output.current = Message(timer.key, None, self._time(timer))
        mark, first = output.mark(), len(output.timers)
        state = self.state.get(timer.key)
        # Only built-in logics are CatchUpLogics. They call the user's functions through `send_result`, which does not raise.
        careful = output.reject is not None and not self.logic._calls_last_timer_only
        before = self.state.codec.encode(state) if careful and state is not None else None
        try:
            new = self.logic.on_timer(timer, self.state.default() if state is None else state, output)
            for other, there in output.timers[first:]:
                if there and other.clock == timer.clock and other.time <= timer.time:
                    raise StepError(
                        f"on_timer set a timer for {other.time}, which is not after the timer that fired; it would "
                        "fire forever"
                    )
            if careful and new is not None:
                self.state.codec.encode(new)
        except UNREADABLE:
            raise
        except Exception as error:
            self.context.check_transient(error)
            if output.reject is not None:
                # The timer counts as fired: the next one gets the unchanged state.
                output.reject(error, {"timer": timer.name, "time": timer.time, "clock": timer.clock})
                output.cut(mark)
                output.current = None
                if before is not None:
                    self.state.put(timer.key, self.state.made_again(timer.key, before))
                return
            raise StepError(
                f"step {self.context.operator!r}, key {timer.key!r}, timer {timer.name!r} at {timer.time}: "
                f"{described(error)}"
            ) from error
        output.current = None
        if new is not None or state is not None:
            self.state.put(timer.key, new)

    def _time(self, timer: Timer) -> int:
        """Return the timestamp for the output of a timer: the time of the timer, if it is allowed."""
        last, time = self.context.last_epoch, int(timer.time)
        if last is None:
            return time
        return last + 1 if timer.clock == "wall" else max(time, last + 1)
