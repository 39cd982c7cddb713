"""match: find sequences of messages of a key, in the order of their times, within a duration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import msgspec
from msgspec import Raw

from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.state_values import StateValues
from tidewheel._operators.keyed.timed import TimedOperator, allowed, time_of
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.layout import StateLayout
from tidewheel._state.timers import Timer
from tidewheel._time.duration import moment
from tidewheel._values import ANY, Shape
from tidewheel._values.type_variables import Value
from tidewheel.errors import GraphError

Condition = Callable[[Any, Mapping[str, list[Any]]], Any]
"""Called with a value, and with the values that the steps before it have matched, by step."""


@dataclass(frozen=True)
class PatternStep:
    """One step of a pattern: the messages that it takes, and those that must not come before it."""

    name: str
    condition: Condition
    least: int
    most: int | None
    without: Condition | None


class Pattern:
    """A sequence of messages to find: steps that follow one another, with other messages in between.

    - `name`: the name of the first step, under which a `Match` has its messages.
    - `condition`: called with a value and the values that match so far, as a dict of lists by step. A message for which
      it returns a true value belongs to the step.
    - `times`: how many messages the step takes: a number, or a pair of the least and the most; None is no limit. The last
      step takes a number.

    >>> small = Pattern("small", lambda order, matched: order.cents < 100, times=2)
    >>> small.then("large", lambda order, matched: order.cents > 10 * matched["small"][0].cents)
    Pattern(small 2 times, large)
    """

    def __init__(self, name: str, condition: Condition, *, times: int | tuple[int, int | None] = 1) -> None:
        self.steps: tuple[PatternStep, ...] = (_step((), name, condition, times, None),)

    def then(
        self,
        name: str,
        condition: Condition,
        *,
        times: int | tuple[int, int | None] = 1,
        without: Condition | None = None,
    ) -> Pattern:
        """Return the pattern with one more step.

        - `name`, `condition`, `times`: as in `Pattern`.
        - `without`: a condition of messages that must not come between the step before and this one. Such a message ends
          the match, unless it belongs to this step.
        """
        longer = object.__new__(Pattern)
        longer.steps = (*self.steps, _step(self.steps, name, condition, times, without))
        return longer

    def __repr__(self) -> str:
        return f"Pattern({', '.join(map(_described, self.steps))})"


def _described(step: PatternStep) -> str:
    if step.least == step.most == 1:
        return step.name
    times = f"{step.least}" if step.least == step.most else f"{step.least} to {step.most or 'any number of'}"
    return f"{step.name} {times} times"


def _step(before: tuple[PatternStep, ...], name: Any, condition: Any, times: Any, without: Any) -> PatternStep:
    if not isinstance(name, str) or not name or name in {step.name for step in before}:
        raise GraphError(f"each step of a pattern has a name of its own, a text; not {name!r}")
    least, most = times if isinstance(times, tuple) and len(times) == 2 else (times, times)
    for number in (least, least if most is None else most):
        if isinstance(number, bool) or not isinstance(number, int) or number < max(1, least):
            raise GraphError(
                f"step {name!r} of a pattern: times= is a number from 1 on, or a pair of the least and the most, not {times!r}"
            )
    return PatternStep(name, condition, least, most, without)


class Match(msgspec.Struct, Generic[Value], frozen=True):
    """The match of a pattern: the first and the last time, and the values of each step, by its name.

    `complete` is False if the time limit has passed before the last step; the steps that are missing have no values.
    """

    start: Any
    end: Any
    values: dict[str, list[Value]]
    complete: bool = True


Partial = tuple[int, int, int, list[tuple[int, Raw]]]
"""The time of the first and the last message, the number of the step, and the messages, each with the number of its step."""
Kept = tuple[list[tuple[int, Raw]], list[Partial]]
"""Messages that wait until the clock has passed their time, and matches that are not complete."""
_KEPT = msgspec.msgpack.Decoder(Kept)


@dataclass(frozen=True)
class MatchOperator(TimedOperator):
    """Find a pattern in the messages of each key. Messages that come after their time has passed go to the second output."""

    pattern: Pattern
    within: int
    overlap: bool
    incomplete: bool
    values: Shape
    kind = "match"
    ports = 2
    output_names = ("", "late")
    needs_time = True
    holds_back = True
    waits_for_epochs = "nothing is matched"

    def logic(self, timestamps: bool = False) -> MatchLogic:
        return MatchLogic(self, timestamps)

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        return {"": StateSpec(self.values.type if self.values.kind == "record" else Any)}

    def rewritten(self, raw: bytes, convert: Callable[[str, bytes], bytes | None]) -> bytes | None:
        def converted(value: Raw) -> Raw | None:
            changed = convert("", bytes(value))
            return None if changed is None else Raw(changed)

        waiting, partials = _KEPT.decode(raw)
        waiting = [(time, value) for time, old in waiting if (value := converted(old)) is not None]
        kept: list[Partial] = []
        for start, end, step, taken in partials:
            values = [(number, value) for number, old in taken if (value := converted(old)) is not None]
            if len(values) == len(taken):
                kept.append((start, end, step, values))
        return msgspec.msgpack.encode((waiting, kept)) if waiting or kept else None

    def spec(self) -> StateSpec:
        return StateSpec(Kept, _nothing)

    @property
    def state_layout(self) -> StateLayout:
        """The steps, because stored messages have the numbers of their steps."""
        return StateLayout(f"matches of {', '.join(step.name for step in self.pattern.steps)}")

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (ANY, inputs[0])


def _nothing() -> Kept:
    return [], []


class MatchLogic(StatefulLogic[Kept]):
    """The incomplete matches of each key."""

    _calls_last_timer_only = True
    _all_or_nothing = True

    def __init__(self, operator: MatchOperator, timestamps: bool) -> None:
        self.steps, self.within = operator.pattern.steps, operator.within
        self.overlap, self.incomplete = operator.overlap, operator.incomplete
        self.values = StateValues(operator.kept[""].resolved_codec())
        self._shown: Callable[[int], Any] = moment if timestamps else int

    def on_data(self, message: Message, state: Kept, output: Any) -> Kept | None:
        """Keep a message until no earlier one can come, or send it to the late output."""
        time = time_of(message)
        if output.last_epoch is not None and time <= output.last_epoch:
            output.set_aside()
            return state if any(state) else None
        stored = self.values.put(message.value)
        output.set_timer(time)
        state[0].append((time, stored))
        return state

    def on_timer(self, timer: Timer, state: Kept, output: Any) -> Kept | None:
        """Handle the messages whose time the clock has passed, in order, and end the matches whose time limit it has passed."""
        until = timer.time if output.epoch is None else max(timer.time, output.epoch)
        waiting, partials = state
        due = sorted((entry for entry in waiting if entry[0] <= until), key=lambda entry: entry[0])
        for time, stored in due:
            partials = self._expired(partials, time - 1, output)
            partials = self._taken(partials, time, stored, output)
        partials = self._expired(partials, until, output)
        for start in {partial[0] for partial in partials}:
            output.set_timer(start + self.within)
        waiting = [entry for entry in waiting if entry[0] > until]
        return (waiting, partials) if waiting or partials else None

    def _expired(self, partials: list[Partial], until: int, output: OutputBuffer) -> list[Partial]:
        """End the matches that can take no message after a time, and return the others."""
        kept = []
        for partial in partials:
            if partial[0] + self.within > until:
                kept.append(partial)
            elif self.incomplete:
                self._emit(partial, output, complete=False)
        return kept

    def _taken(self, partials: list[Partial], time: int, stored: Raw, output: OutputBuffer) -> list[Partial]:
        """Return the incomplete matches after a message; emit those that it completes.

        A message for which a condition fails changes nothing.
        """
        value = self.values.get(stored)
        kept: list[Partial] = []
        complete: list[Partial] = []
        try:
            for partial in partials:
                longer = self._advanced(partial, time, stored, value)
                if longer is not None:
                    (complete if self._is_complete(longer) else kept).append(longer)
            if (self.overlap or not complete) and self.steps[0].condition(value, {}):
                first: Partial = (time, time, 0, [(0, stored)])
                (complete if self._is_complete(first) else kept).append(first)
        except Exception as error:
            if output.reject is None:
                raise
            output.reject(error, value)
            return partials
        if complete and not self.overlap:
            complete, kept = complete[:1], []
        for partial in complete:
            self._emit(partial, output, complete=True)
        return kept

    def _advanced(self, partial: Partial, time: int, stored: Raw, value: Any) -> Partial | None:
        """Return a match with a message, if it belongs to the next step or to this one; None if the message ends it."""
        start, _, number, taken = partial
        step, count = self.steps[number], sum(at == number for at, _ in taken)
        matched = self._matched(taken)
        if count >= step.least and number + 1 < len(self.steps):
            following = self.steps[number + 1]
            if following.condition(value, matched):
                return start, time, number + 1, [*taken, (number + 1, stored)]
            if following.without is not None and following.without(value, matched):
                return None
        if (step.most is None or count < step.most) and step.condition(value, matched):
            return start, time, number, [*taken, (number, stored)]
        return partial

    def _is_complete(self, partial: Partial) -> bool:
        _, _, number, taken = partial
        return number == len(self.steps) - 1 and sum(at == number for at, _ in taken) >= self.steps[number].least

    def _matched(self, taken: list[tuple[int, Raw]]) -> dict[str, list[Any]]:
        values: dict[str, list[Any]] = {step.name: [] for step in self.steps}
        for number, stored in taken:
            values[self.steps[number].name].append(self.values.get(stored))
        return values

    def _emit(self, partial: Partial, output: OutputBuffer, *, complete: bool) -> None:
        start, end, _, taken = partial
        time = allowed(end if complete else start + self.within, output)
        values = {"start": self._shown(start), "end": self._shown(end), "values": self._matched(taken)}
        output.send_result(time, Match, **values, complete=complete)
