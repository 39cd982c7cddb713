"""Does a program fit the state that a job has? Pure checks, made before anything runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from tidewheel._checkpoint.manifest import Manifest, OperatorInfo
from tidewheel._engine.state_type import check_fields
from tidewheel._engine.window_change import WAYS, WindowPlace, way_to_another_window
from tidewheel.errors import StateError


def check_program(
    state: Manifest,
    operators: dict[str, OperatorInfo],
    n_shards: int,
    allow_dropped_state: Collection[str],
    aliases: Mapping[str, Sequence[str]] | None = None,
    upgrades: Collection[str] = (),
    conversions: Collection[str] = (),
    sizes: Mapping[str, str] | None = None,
    places: Mapping[str, WindowPlace] | None = None,
) -> None:
    """Raise a `StateError` where the state was made by a program that this one cannot continue.

    `aliases` are the names that operators had before, `upgrades` the operators that can make their state from an older version,
    `conversions` those that can make it from another layout. `sizes` tells, for people, how much those hold that the program
    lacks, and `places` what stands before windows.
    """
    job = state.id.stream_id
    if state.n_shards != n_shards:
        raise StateError(
            f"job {job!r} has n_shards={n_shards}, and its state was made with {state.n_shards}: the number is fixed for the "
            f"life of a job's state; set n_shards={state.n_shards}"
        )
    former = renamed(state.operators, operators, aliases or {})
    stored = {**state.operators, **{name: state.operators[old] for name, old in former.items()}}
    dropped = dropped_operators(state, operators, aliases or {})
    _check_given_up(allow_dropped_state, operators, former)
    lost = [name for name in dropped if name not in allow_dropped_state]
    if lost:
        held = (f"{name!r}{f' with {sizes[name]}' if sizes and name in sizes else ''}" for name in lost)
        idle = idle_aliases(state.operators, operators, aliases or {})
        unknown = [name for name in allow_dropped_state if name not in state.operators]
        raise StateError(
            f"the state of job {job!r} names the operator {', '.join(held)}, which the program lacks (it has "
            f"{', '.join(map(repr, sorted(operators))) or 'none with state'}). A name is the identity of an operator's state: "
            f"give the operator its old name back; if it was renamed, write {_alias_lines(lost, state.operators, operators)}; "
            "or go on without that state, which is then removed, with "
            f"{' '.join(f'--allow-dropped-state {name}' for name in lost)} (allow_dropped_state={lost!r})"
            + "".join(f". {line} names nothing that is stored" for line in idle)
            + "".join(f". Nothing is stored under {name!r}, which is to be dropped" for name in unknown)
        )
    for name in sorted(set(stored) & set(operators)):
        was, now = stored[name], operators[name]
        if was.version > now.version:
            raise StateError(
                f"operator {name!r}: its state has version {was.version}, and the program knows version {now.version}: a newer "
                "program wrote it; run that one, or restore the job to a checkpoint from before it"
            )
        if was.version < now.version and name not in upgrades:
            raise StateError(
                f"operator {name!r}: its state has version {was.version}, the program has version {now.version} and no way from "
                "one to the other; give upgrade="
            )
        if was.version == now.version:
            check_fields(name, was.fields, now.fields)
        if was.codec != now.codec:
            raise StateError(
                f"operator {name!r}: its state is stored as {was.codec}, and the program would read it as {now.codec}; "
                "keep the codec"
            )
        if was.kind != now.kind and "aggregate" in (was.kind, now.kind):
            raise StateError(
                f"operator {name!r} was a {was.kind} and is now a {now.kind}: their states differ; give it a new name"
            )
        if was.fingerprint != now.fingerprint and name not in conversions:
            way = "; give the changed operator a new name"
            if was.kind == now.kind and now.kind in WAYS:
                place = (places or {}).get(name, WindowPlace())
                layouts = (was.fingerprint, now.fingerprint)
                way = "." + way_to_another_window(job, name, now.kind, layouts, _furthest(state), place)
            raise StateError(
                f"operator {name!r} kept {_spelled(was.fingerprint) or 'other state'} for each key, and now keeps "
                f"{_spelled(now.fingerprint)}: one cannot be read as the other{way}"
            )


def _furthest(state: Manifest) -> int | None:
    """Return the clock of the input whose time has come furthest: the others hold back the job's own."""
    times = (state.epoch, *(frontier.time for frontier in state.frontiers.values()))
    return max((time for time in times if time is not None), default=None)


def idle_aliases(
    stored: Collection[str], operators: Collection[str], aliases: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the aliases, as the program has them, of operators that have no state under any of their names."""
    return [
        f"job.alias({', '.join(map(repr, (name, *former)))})"
        for name, former in sorted(aliases.items())
        if name in operators and not {name, *former} & set(stored)
    ]


def _check_given_up(names: Collection[str], operators: Collection[str], former: Mapping[str, str]) -> None:
    """Refuse to give up state that the program goes on with. What is not stored is gone already, or nothing is lost by it."""
    heirs = {old: name for name, old in former.items()}
    for name in names:
        if name in operators or name in heirs:
            who = "the program has that operator" if name in operators else f"{heirs[name]!r} takes over its state"
            raise StateError(f"--allow-dropped-state {name}: {who}, and nothing of it is dropped; leave the option out")


def _alias_lines(lost: Sequence[str], stored: Mapping[str, OperatorInfo], operators: Mapping[str, OperatorInfo]) -> str:
    """Return an alias for each lost operator, with its new name where only one can be meant."""
    lines = []
    for old in lost:
        alike = [name for name in operators if name not in stored and operators[name].kind == stored[old].kind]
        rivals = [other for other in lost if stored[other].kind == stored[old].kind]
        new = alike[0] if len(alike) == len(rivals) == 1 else "its new name"
        lines.append(f"job.alias({new!r}, {old!r})")
    return ", ".join(lines)


def dropped_operators(state: Manifest, operators: Collection[str], aliases: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the operators with stored state that the program lacks."""
    former = renamed(state.operators, operators, aliases)
    return sorted(set(state.operators) - set(operators) - set(former.values()))


def _spelled(layout: str) -> str:
    """Return a layout for people, with its lengths of time as hours, minutes and seconds.

    >>> _spelled("windows of 5400000000000 ns from 0"), _spelled("windows of 10 ns from 0")
    ('windows of 1:30:00 from 0', 'windows of 10 ns from 0')
    """
    return re.sub(r"(\d+)000 ns", lambda length: str(timedelta(microseconds=int(length[1]))), layout)


def renamed(
    stored: Collection[str], operators: Collection[str], aliases: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the former name of each operator or source whose state is stored under that name and not under its own.

    A `StateError` where an alias can only be meant the other way round.
    """
    former_names: dict[str, str] = {}
    for old in sorted((set(aliases) & set(stored)) - set(operators)):
        for name in aliases[old]:
            if name in operators and name not in stored:
                raise StateError(
                    f"job.alias({old!r}, {name!r}): the other way round? {old!r} is what the job has stored, and {name!r} is in "
                    f"the program: the present name comes first, job.alias({name!r}, {old!r})"
                )
    for name in sorted(set(aliases) & set(operators) - set(stored)):
        former = [old for old in aliases[name] if old in stored and old not in operators]
        if len(former) > 1:
            raise StateError(
                f"{name!r} has state under several of its former names: {', '.join(former)}; name one of them"
            )
        if former and former[0] in former_names.values():
            raise StateError(f"{former[0]!r} is named as an alias by two others; one of them can have its state")
        if former:
            former_names[name] = former[0]
    return former_names
