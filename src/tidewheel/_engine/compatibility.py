"""Check that a program can continue the state of a job. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidewheel._checkpoint.manifest import Manifest, OperatorInfo
from tidewheel._engine.stored_names import STATE, check_dropped, renamed
from tidewheel._engine.window_change import WAYS, WindowPlace, way_to_another_window
from tidewheel._state.type_change import Change, Misfit, change
from tidewheel._state.type_description import RESULT
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

    `aliases` are the names that steps had before, `upgrades` the steps that can make their state from an older version,
    `conversions` those that can make it from another layout. For messages, `sizes` has the size of the state of steps that the
    program lacks, and `places` the steps before windows.
    """
    job = state.id.stream_id
    if state.n_shards != n_shards:
        raise StateError(
            f"job {job!r} has n_shards={n_shards}, and its state was made with {state.n_shards}: the number is fixed for the "
            f"life of a job's state; set n_shards={state.n_shards}, or rewrite the state with tidewheel state reshard"
        )
    former = renamed(state.operators, operators, aliases or {})
    stored = {**state.operators, **{name: state.operators[old] for name, old in former.items()}}
    kinds, present = ({name: info.kind for name, info in infos.items()} for infos in (state.operators, operators))
    found = f"the state of job {job!r} names"
    check_dropped(STATE, found, kinds, present, aliases or {}, allow_dropped_state, sizes)
    for name in sorted(set(stored) & set(operators)):
        was, now = stored[name], operators[name]
        layouts_differ = was.layout != now.layout and name not in conversions
        if was.kind != now.kind and ("aggregate" in (was.kind, now.kind) or layouts_differ):
            raise StateError(
                f"step {name!r} was made by {was.kind} and is now made by {now.kind}: their states differ; give it a new name"
            )
        if was.version > now.version:
            raise StateError(
                f"step {name!r}: its state has version {was.version}, and the program knows version {now.version}: a newer "
                "program wrote it; run that one, or restore the job to a checkpoint from before it"
            )
        if was.version < now.version and name not in upgrades:
            raise StateError(
                f"step {name!r}: its state has version {was.version}, the program has version {now.version} and no way from "
                "one to the other; give upgrade=, a function of a stored state and its version that returns the new state"
            )
        value_changes(name, was, now)
        if was.codec != now.codec:
            raise StateError(
                f"step {name!r}: its state is stored as {was.codec}, and the program would read it as {now.codec}; "
                "keep the codec"
            )
        if layouts_differ:
            way = "; give the changed step a new name"
            if now.kind in WAYS:
                place = (places or {}).get(name, WindowPlace())
                layouts = (was.layout, now.layout)
                way = "." + way_to_another_window(job, name, now.kind, layouts, _furthest(state), place)
            raise StateError(
                f"step {name!r} kept {was.layout.describe() or 'other state'} for each key, and now keeps "
                f"{now.layout.describe()}: one cannot be read as the other{way}"
            )


def value_changes(operator: str, was: OperatorInfo, now: OperatorInfo) -> dict[str, Change]:
    """Return the change of the stored values of each name; nothing if the version has changed.

    Raise a `StateError` where stored values would be lost or read wrongly. Results of aggregates are compared by the layout.
    """
    if was.version != now.version:
        return {}
    stored = {each.name: each.type for each in was.values}
    changes = {}
    for name, today in ((each.name, each.type) for each in now.values if each.type.kind != RESULT):
        try:
            changes[name] = change(stored.get(name), today, f"its {name} value" if name else "its state")
        except Misfit as misfit:
            raise StateError(f"step {operator!r}: {misfit}; {misfit.advice}{WAYS_ON}") from None
    return changes


WAYS_ON = (
    "; raise version= and give upgrade=, a function that converts stored states; or give the step a new name, under "
    "which it begins without state (see docs/howto-change.md)"
)
"""What to do about stored state that does not fit, apart from what the error says first."""


def _furthest(state: Manifest) -> int | None:
    """Return the clock of the input that is furthest ahead: the other inputs hold back the job's clock."""
    times = (state.epoch, *(frontier.time for frontier in state.frontiers.values()))
    return max((time for time in times if time is not None), default=None)
