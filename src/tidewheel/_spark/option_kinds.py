"""The kinds of values that run options have: how each is checked, read from text, and shown in help."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from tidewheel._engine.stored_names import check_names
from tidewheel._observe.endpoint import place
from tidewheel._time.duration import nanoseconds
from tidewheel.errors import ConfigError


@dataclass(frozen=True)
class Kind:
    """A kind of value."""

    check: Callable[[str, Any], None]
    """Raises for an invalid value of the option with this name."""
    written: Any = str
    """The type on the command line: str, int, bool or list[str]."""
    metavar: str | None = None
    none_word: str | None = None
    """The word that stands for None on the command line and in a file."""
    numbers: bool = False
    """Whether digits on the command line are a number, where other words are allowed too."""

    def shown(self, metavar: str) -> Kind:
        """Return this kind with another placeholder in help texts."""
        return dataclasses.replace(self, metavar=metavar)

    @property
    def or_none(self) -> Kind:
        """Return this kind, with the word 'none' for None."""
        return dataclasses.replace(self, none_word="none")

    def read(self, value: Any) -> Any:
        """Return a value of the command line or of a file as Python has it."""
        if self.numbers and isinstance(value, str) and value.isdecimal():
            return int(value)
        return None if self.none_word is not None and value == self.none_word else value


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be text, not {value!r}")


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false, not {value!r}")


def _settings(name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ConfigError(
            f'{name} must map names of Spark settings to text, such as "spark.driver.memory" to "4g", not {value!r}'
        )


def _address(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"{name} must be a port or host:port, such as 9090 or 0.0.0.0:9090, not {value!r}")
    place(value)


def duration(least: int = 0) -> Kind:
    """Return the kind of durations of at least this number of ns."""

    def check(name: str, value: Any) -> None:
        nanoseconds(value, name, least)

    return Kind(check, str, "TIME")


def whole_number(least: int, most: int | None = None) -> Kind:
    """Return the kind of whole numbers in this range."""
    bound = f"from {least}" if most is None else f"from {least} to {most}"

    def check(name: str, value: Any) -> None:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            raise ConfigError(f"{name} must be a whole number {bound}, not {value!r}")

    return Kind(check, int)


def _one_of(*choices: str) -> Kind:
    def check(name: str, value: Any) -> None:
        if value not in choices:
            allowed = " or ".join(map(repr, choices))
            near = get_close_matches(str(value).replace("_", "-"), choices, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{name} must be {allowed}, not {value!r}{meant}")

    return Kind(check, str, "|".join(choices))


def _tasks(name: str, value: Any) -> None:
    if value != AUTO and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(f"{name} must be a whole number from 1, or {AUTO!r}, not {value!r}")


AUTO = "auto"
TASKS = Kind(_tasks, str, f"N|{AUTO}", numbers=True)
TEXT = Kind(_text)
FLAG = Kind(_flag, bool)
NAMES = Kind(check_names, list[str], "NAME")
SETTINGS = Kind(_settings, list[str], "NAME=VALUE")
ADDRESS = Kind(_address, str, "[HOST:]PORT")
PORT = whole_number(0, 65535).shown("PORT")
UNTIL = _one_of("caught-up", "end")
