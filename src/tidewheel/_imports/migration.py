"""How a job continues a Spark query: the operator for each step, the source for each source, and the mapping of states."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._checkpoint.spark_folder import SparkFolder
from tidewheel._checkpoint.spark_log import numbered
from tidewheel._connectors.source import Source
from tidewheel._core.user_code import described
from tidewheel._engine.continued_sources import kind_of
from tidewheel._imports.imported_step import ImportedStep
from tidewheel._state.sorted_runs import SortedRuns
from tidewheel._state.timers import Clock, Timer
from tidewheel.errors import ConfigError, StateError


@dataclass(frozen=True)
class SparkState:
    """The state of one key of a Spark operator, as a function of `migrations` gets it. Times are ns since 1970.

    A row with one field is that field, also as a key, in a list and in a map; a row with several fields is a dict.
    """

    key: Any
    """The grouping columns: a value, or a tuple of several."""
    values: Mapping[str, Any]
    """The state variables of `transformWithState` by name, each a value, a list or a dict; for other operators, the
    columns of the state."""
    timers: tuple[int, ...] = ()
    """When the timers of the key fire."""
    expires: Mapping[str, Any] = field(default_factory=dict)
    """By state variable with a TTL, when it expires: a time, or for a list or a map one for each element or entry."""

    @property
    def value(self) -> Any:
        """The only value, or a dict of all if there are several."""
        return next(iter(self.values.values())) if len(self.values) == 1 else dict(self.values)


@dataclass(frozen=True)
class FromSpark:
    """The place in a Spark query from which a step or a source of the program continues.

    - `state`: a function that gets a `SparkState` and returns the state of the step for that key, or None for a key
      that is not migrated. None takes `SparkState.value`.
    - `operator`: the number of the stateful operator, as the dry run shows it; for a step.
    - `source`: the number of the source, as the dry run shows it; for a source.
    - `clock`: the clock of the operator's timers, "event" or "wall", if the query does not record it: that of
      applyInPandasWithState, by default "wall".
    """

    state: Callable[[SparkState], Any] | None = None
    operator: int | None = None
    source: int | None = None
    clock: Clock | None = None


Migrations = Mapping[str, "FromSpark | Callable[[SparkState], Any]"]
"""By the name of a step or source. A function alone means `FromSpark(function)`."""


def entries_of(migrations: Migrations, names: Sequence[str], where: str) -> dict[str, FromSpark]:
    """Return the entries of a program; raise a `ConfigError` for a name that the program does not have."""
    unknown = [name for name in migrations if name not in names]
    if unknown:
        raise ConfigError(
            f"{where}: migrations has {unknown[0]!r}, which is neither a source nor a step that state can be migrated into; "
            f"there are {', '.join(map(repr, names)) or 'none'}"
        )
    return {name: entry if isinstance(entry, FromSpark) else FromSpark(entry) for name, entry in migrations.items()}


def assigned(
    names: Sequence[str], wanted: Mapping[str, int | None], numbers: Sequence[int], what: str
) -> dict[str, int]:
    """Return the number of the operator or source that each name continues. Pure.

    `wanted` has the names in `migrations`. Without a number, a name continues the only operator or source there is.

    >>> assigned(["total"], {}, [0], "operator"), assigned(["a", "b"], {"b": 1}, [0, 1], "operator")
    ({'total': 0}, {'b': 1})
    """
    found: dict[str, int] = {}
    chosen = wanted or (dict.fromkeys(names) if numbers else {})
    for name, number in chosen.items():
        if number is None and (len(numbers) != 1 or len(chosen) != 1):
            raise ConfigError(
                f"the query has {len(numbers)} {what}s and the program {len(chosen)} names that could continue one: choose for "
                f"{name!r} with migrations = {{{name!r}: FromSpark({what}=0)}} in the program; --dry-run lists the {what}s"
            )
        if number is not None and number not in numbers:
            there = ", ".join(map(str, numbers)) or "none"
            raise ConfigError(f"migrations of {name!r}: the query has no {what} {number}; there are {there}")
        number = numbers[0] if number is None else number
        other = next((each for each, taken in found.items() if taken == number), None)
        if other is not None:
            raise ConfigError(
                f"{other!r} and {name!r} both continue {what} {number} of the query, and only one of them can: correct the "
                f"numbers in migrations, FromSpark({what}=N); --dry-run lists them"
            )
        found[name] = number
    return found


def kept(found: Mapping[int, str], without: Collection[int], what: str) -> dict[int, str]:
    """Return the operators or sources of the query, by number, without those that are left behind. Pure.

    >>> kept({0: "files", 1: "kafka"}, [1], "source")
    {0: 'files'}
    """
    for number in without:
        if number not in found:
            there = ", ".join(map(str, found)) or "none"
            raise ConfigError(f"--without-{what} {number}: the query has no {what} {number}; there are {there}")
    return {number: kind for number, kind in found.items() if number not in without}


def unclaimed(chosen: Mapping[str, int], found: Mapping[int, str], what: str) -> list[str]:
    """Return a refusal for each operator or source of the query that no name continues. Pure."""
    names, lost = {"operator": ("step", "state"), "source": ("source", "offsets")}[what]
    return [
        f"{what} {number} ({kind}) is continued by no {names} of the program: name it in migrations, as "
        f"FromSpark({what}={number}), or leave its {lost} behind with --without-{what} {number}"
        for number, kind in found.items()
        if number not in chosen.values()
    ]


def source_position(
    name: str, source: Source, folder: SparkFolder, number: int
) -> tuple[Position | None, list[SeenFile]]:
    """Return where a source continues, and the files that it has seen. A `StateError` if it cannot continue there."""
    kind = folder.kind(number)
    if kind is None or not source.has_reader:
        raise StateError(
            f"source {number} of the query has the offset {folder.offsets[number]}, from which source {name!r} "
            f"({kind_of(source)}) cannot continue: only offsets of files and of Kafka can be migrated. Leave the source "
            f"out of the program's first run, or let it begin at its own start: migrate with --without-source {number}"
        )
    old = folder.position(number)
    seen = numbered(name, old, folder.seen)
    return source.adopt(old, seen), seen


class StepMigration:
    """Maps the states of one operator to those of a step, and counts what happens to them."""

    def __init__(self, step: ImportedStep, entry: FromSpark, clock: Clock) -> None:
        """Take the step, its entry, and the clock of the operator's timers."""
        self.step, self._entry, self._clock = step, entry, entry.clock or clock
        self.read = self.left_out = self.timers = self.expired = 0
        self.samples: list[tuple[SparkState, Any]] = []

    @property
    def keeps_expiry(self) -> bool:
        """Whether the step's time to live is by the same clock as Spark's."""
        return self.step.ttl is not None and self.step.ttl.clock == "wall"

    def add(self, entries: SortedRuns, old: SparkState, samples: int) -> None:
        """Add a key. Raise `StateError`, with step and key, if the function fails or returns the wrong type."""
        self.read += 1
        if old.expires and not old.values:
            self.expired += 1
            return
        try:
            state = old.value if self._entry.state is None else self._entry.state(old)
        except Exception as error:
            raise StateError(
                f"the function of migrations for step {self.step.name!r} failed on key {old.key!r}: {described(error)}; "
                "nothing is migrated"
            ) from error
        if state is None:
            self.left_out += 1
            return
        self.step.add(entries, old.key, state)
        if len(self.samples) < samples:
            self.samples.append((old, state))
        if self.step.has_timers:
            for time in old.timers:
                self.step.add_timer(entries, Timer(old.key, time, "", self._clock))
        self.timers += len(old.timers)
        times = list(_times(old.expires))
        if times and self.keeps_expiry:
            self.step.add_expiry(entries, old.key, max(times))

    def notes(self) -> list[str]:
        """Return notes for the user about states that were not migrated unchanged."""
        name, found = self.step.name, []
        if self.timers and not self.step.has_timers:
            found.append(
                f"{self.timers:,} timers are dropped: step {name!r} has no on_timer. Use a stateful_op whose StatefulLogic "
                "defines it to keep them"
            )
        if self.expired:
            found.append(f"{self.expired:,} keys had only expired state and are left out")
        if self.left_out:
            found.append(f"{self.left_out:,} keys are left out: the function of migrations returned None for them")
        return found


def _times(expires: Mapping[str, Any]) -> list[int]:
    found: list[int] = []
    for each in expires.values():
        found += [each] if isinstance(each, int) else list(each.values() if isinstance(each, dict) else each)
    return found
