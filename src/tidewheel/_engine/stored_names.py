"""The names under which a job has stored state of steps and offsets of sources.

A program continues data that is stored under the name of one of its steps or sources, or under a former name that it gives as an
alias. All other data is dropped only if the user names it. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tidewheel.errors import ConfigError, StateError


@dataclass(frozen=True)
class Stored:
    """A kind of thing that is stored under names, with the words for messages."""

    owned_by: str
    """The owner of the name, with an article."""
    content: str
    gone: str
    """What the option drops."""
    option: str
    """The option that drops it, in Python."""

    @property
    def owner(self) -> str:
        """The owner of the name."""
        return self.owned_by.split()[1]

    @property
    def flag(self) -> str:
        """The option that drops it, on the command line."""
        return f"--{self.option.replace('_', '-')}"


STATE = Stored("a step", "state", "the stored state", "allow_dropped_state")
OFFSETS = Stored("a source", "offsets", "the stored offsets", "allow_dropped_source")


def check_names(option: str, names: object) -> None:
    """Raise a `ConfigError` if an option that takes a list of names got a text, whose letters would count as names."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigError(f'{option} is a list of names, such as ["last"], not {names!r}')


def renamed(stored: Collection[str], present: Collection[str], aliases: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the former name of each step or source that has something under that name and not under its own.

    A `StateError` where an alias can only be meant the other way round.
    """
    former_names: dict[str, str] = {}
    for old in sorted((set(aliases) & set(stored)) - set(present)):
        for name in aliases[old]:
            if name in present and name not in stored:
                raise StateError(
                    f"job.alias({old!r}, {name!r}): the other way round? {old!r} is what the job has stored, and {name!r} is in "
                    f"the program: the present name comes first, job.alias({name!r}, {old!r})"
                )
    for name in sorted(set(aliases) & set(present) - set(stored)):
        former = [old for old in aliases[name] if old in stored and old not in present]
        if len(former) > 1:
            raise StateError(
                f"{name!r} has state under several of its former names: {', '.join(former)}; name one of them"
            )
        if former and former[0] in former_names.values():
            raise StateError(f"{former[0]!r} is named as an alias by two others; one of them can have its state")
        if former:
            former_names[name] = former[0]
    return former_names


def dropped(stored: Collection[str], present: Collection[str], aliases: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names that the program lacks."""
    return sorted(set(stored) - set(present) - set(renamed(stored, present, aliases).values()))


def idle_aliases(stored: Collection[str], present: Collection[str], aliases: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the aliases, as the program has them, of those that have nothing under any of their names."""
    return [
        f"job.alias({', '.join(map(repr, (name, *former)))})"
        for name, former in sorted(aliases.items())
        if name in present and not {name, *former} & set(stored)
    ]


def drop_option(sort: Stored, names: Sequence[str]) -> str:
    """Return the options that drop what is stored under these names, for the command line and for Python.

    >>> drop_option(OFFSETS, ["a", "b"])
    "--allow-dropped-source a --allow-dropped-source b (allow_dropped_source=['a', 'b'])"
    """
    return f"{' '.join(f'{sort.flag} {name}' for name in names)} ({sort.option}={list(names)!r})"


def check_dropped(
    sort: Stored,
    found: str,
    stored: Mapping[str, str],
    present: Mapping[str, str],
    aliases: Mapping[str, Sequence[str]],
    allowed: Collection[str],
    sizes: Mapping[str, str] | None = None,
) -> None:
    """Raise a `StateError` if the program lacks a stored name that is not in `allowed`.

    `found` is the beginning of the error. `stored` and `present` have the kind of each name, `sizes` a readable size of
    some. An allowed name that is not stored is no error; a name that the program still uses cannot be dropped.
    """
    _check_dropped_names(sort, allowed, present, renamed(stored, present, aliases))
    lost = [name for name in dropped(stored, present, aliases) if name not in allowed]
    if not lost:
        return
    held = (f"{name!r}{f' with {sizes[name]}' if sizes and name in sizes else ''}" for name in lost)
    raise StateError(
        f"{found} the {sort.owner} {', '.join(held)}, which the program lacks (it has "
        f"{', '.join(map(repr, sorted(present))) or f'none with {sort.content}'}). A name is the identity of the {sort.content} "
        f"of {sort.owned_by}: give the {sort.owner} its old name back; if it was renamed, write "
        f"{_alias_lines(lost, stored, present)}; or drop {sort.gone} with "
        f"{drop_option(sort, lost)}"
        + "".join(f". {line} names nothing that is stored" for line in idle_aliases(stored, present, aliases))
        + "".join(
            f". Nothing is stored under {name!r}, which is to be dropped" for name in allowed if name not in stored
        )
    )


def _check_dropped_names(
    sort: Stored, names: Collection[str], present: Collection[str], former: Mapping[str, str]
) -> None:
    heirs = {old: name for name, old in former.items()}
    for name in names:
        if name in present or name in heirs:
            who = (
                f"the program has that {sort.owner}"
                if name in present
                else f"{heirs[name]!r} takes over its {sort.content}"
            )
            raise StateError(f"{sort.flag} {name}: {who}, and nothing of it is dropped; leave the option out")


def _alias_lines(lost: Sequence[str], stored: Mapping[str, str], present: Mapping[str, str]) -> str:
    """Return an alias for each lost name, with its new name where only one can be meant."""
    lines = []
    for old in lost:
        alike = [name for name in present if name not in stored and present[name] == stored[old]]
        rivals = [other for other in lost if stored[other] == stored[old]]
        new = alike[0] if len(alike) == len(rivals) == 1 else "its new name"
        lines.append(f"job.alias({new!r}, {old!r})")
    return ", ".join(lines)
