"""Adapt stored state to a changed program: rename, upgrade and convert the state of steps, and drop unused state.

This is one commit before the first batch. Afterwards all state has the present names and versions; tasks and tools know no other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tidewheel._checkpoint.manifest import Kind, Manifest, OperatorInfo
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._core.keys import from_stored
from tidewheel._core.user_code import described
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import info_of, operator_infos
from tidewheel._engine.compatibility import check_program, value_changes
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.report import Report
from tidewheel._engine.stored_names import dropped, renamed
from tidewheel._engine.window_change import window_places
from tidewheel._operators.base import Conversion
from tidewheel._operators.graph import Node
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._state.codec import StateCodec, msgpack_codec
from tidewheel._state.segments import SUFFIX
from tidewheel._state.state_file import Item
from tidewheel._state.type_change import Change, with_defaults
from tidewheel._state.type_conversion import NotAsRecorded, converted, lost_field
from tidewheel._state.type_description import StateType
from tidewheel._storage import Store
from tidewheel.errors import CorruptError, StateError, StepError

_AS_IT_IS = Conversion(None, "")

Upgrade = Callable[[bytes, bytes], bytes | None]
"""From a stored key and its encoded state to the encoded state of today."""


def state_of(node: Node) -> StateSpec | None:
    """Return how a node's state is described, if it is one that a user declares."""
    spec = getattr(node.operator, "state", None)
    return spec if isinstance(spec, StateSpec) else None


def upgrades(plan: Plan) -> frozenset[str]:
    """Return the steps that can make their state from an older version's."""
    return frozenset(
        node.name for node in plan.nodes if any(spec.upgrade is not None for spec in node.operator.kept.values())
    )


def fitted(
    plan: Plan,
    state: Manifest,
    n_shards: int,
    aliases: Mapping[str, Sequence[str]],
    *,
    allow_dropped_state: Collection[str] = (),
    sizes: Mapping[str, str] | None = None,
) -> tuple[Plan, dict[str, Conversion]]:
    """Return the plan that continues the state of a manifest, and the conversions that the state needs.

    Raise a `StateError` where the program cannot continue it. Runs of whole jobs and nodes of fleets both decide by this.
    """
    plan = continuing(plan, state.operators, aliases)
    converted = conversions(plan, state.operators, aliases)
    check_program(
        state,
        operator_infos(plan),
        n_shards,
        allow_dropped_state,
        aliases,
        upgrades(plan),
        converted,
        sizes,
        window_places(plan),
    )
    return plan, converted


def continuing(plan: Plan, stored: Mapping[str, OperatorInfo], aliases: Mapping[str, Sequence[str]]) -> Plan:
    """Return the plan with steps that continue stored state if they can."""
    former = renamed(stored, operator_infos(plan), aliases)
    nodes = []
    for node in plan.nodes:
        was = stored.get(former.get(node.name, node.name))
        operator = None if was is None else node.operator.continuing(was.layout)
        nodes.append(node if operator is None else replace(node, operator=operator))
    return replace(plan, nodes=tuple(nodes))


def conversions(
    plan: Plan, stored: Mapping[str, OperatorInfo], aliases: Mapping[str, Sequence[str]]
) -> dict[str, Conversion]:
    """Return the steps whose stored state has another layout that can be converted, with the conversions."""
    former = renamed(stored, operator_infos(plan), aliases)
    found = {}
    for node in plan.nodes:
        was = stored.get(former.get(node.name, node.name))
        if was is not None and node.operator.stateful and was.layout != node.operator.state_layout:
            if node.operator.takes(was.layout):
                found[node.name] = _AS_IT_IS
                continue
            conversion = node.operator.conversion(was.layout)
            if conversion is not None:
                found[node.name] = conversion
    return found


def notices(plan: Plan, stored: Mapping[str, OperatorInfo], aliases: Mapping[str, Sequence[str]]) -> list[str]:
    """Return messages for the user about steps whose name or type has changed."""
    infos = operator_infos(plan)
    former = renamed(stored, infos, aliases)
    found = [f"step {name!r}: it continues with the state of {old!r}" for name, old in former.items()]
    for name, now in infos.items():
        was = stored.get(former.get(name, name))
        if was is not None:
            changes = value_changes(name, was, now).values()
            found += [f"step {name!r}: {note}" for change in changes for note in change.notes]
    return found


class Evolving(Protocol):
    """A run whose state can be adapted: one that claims a job, a run in a fleet, or a follower of a job."""

    job: ProgramJob
    plan: Plan
    store: Store
    token: str
    head: Manifest

    def spec(self, parallelism: int, local: str) -> BatchSpec:
        """Return the spec of the next commit."""

    def commit(
        self,
        spec: BatchSpec,
        reports: Sequence[Report],
        kind: Kind,
        spark: Any,
        *,
        operators: Mapping[str, OperatorInfo],
        former: Mapping[str, str],
    ) -> bool:
        """Commit the adapted state."""


def evolve(run: Evolving) -> None:
    """Commit the state under today's names and versions, if it is not so already.

    The program was checked before: steps that it lacks may be dropped. Shards that were adopted from other holders may
    have been kept by other versions of the program than the rest.
    """
    head = run.head
    files = DeltaFiles(run.store, head, run.token)
    evolved, former = False, dict[str, str]()
    for stored, shards in _groups(head):
        change = _change(stored, run.plan, run.job.aliases)
        evolved = evolved or bool(change.renamed or change.dropped or change.upgraded)
        former |= change.renamed
        if change.renamed or change.dropped or change.upgraded or change.retyped:
            reader = StateReader(run.store, head.replace(operators=dict(stored)))
            for shard in shards:
                _evolve_shard(run.plan, stored, change, shard, reader, files)
    # If stored values were only checked against the type, the next commit records the type.
    reports = files.reports()
    if evolved or reports:
        spec = run.spec(head.parallelism, "")
        run.commit(spec, reports, "upgrade", None, operators=operator_infos(run.plan), former=former)


@dataclass(frozen=True)
class _Change:
    """The changes to stored state: steps by their present names, with their former names."""

    renamed: dict[str, str]
    upgraded: dict[str, str]
    """The steps with another version or layout."""
    retyped: dict[str, str]
    """The steps with other types, whose stored values are converted or read once."""
    dropped: set[str]


def _groups(head: Manifest) -> list[tuple[dict[str, OperatorInfo], list[int]]]:
    """Group the shards by the steps of the program that kept them. The job's own group is first and may be empty."""
    groups = [(head.operators, [shard for shard in sorted(head.shards) if shard not in head.former_operators])]
    for shard, stored in sorted(head.former_operators.items()):
        if shard in head.shards:
            known = next((shards for infos, shards in groups[1:] if infos == stored), None)
            if known is None:
                groups.append((stored, known := []))
            known.append(shard)
    return groups


def _change(stored: Mapping[str, OperatorInfo], plan: Plan, aliases: Mapping[str, Sequence[str]]) -> _Change:
    infos = operator_infos(plan)
    former = renamed(stored, infos, aliases)
    upgraded, retyped = dict[str, str](), dict[str, str]()
    for node in plan.nodes:
        if node.name not in infos or node.name not in stored:
            continue
        was, now = stored[node.name], infos[node.name]
        if was.version != now.version or _converts(node, was):
            upgraded[node.name] = node.name
        elif not all(change.is_none for change in value_changes(node.name, was, now).values()):
            retyped[node.name] = node.name
    return _Change(former, upgraded, retyped, set(dropped(stored, infos, aliases)))


def _converts(node: Node, was: OperatorInfo) -> bool:
    """Return whether stored state must be converted to be that of the node's step."""
    return was.layout != node.operator.state_layout and not node.operator.takes(was.layout)


def _evolve_shard(
    plan: Plan,
    stored: Mapping[str, OperatorInfo],
    change: _Change,
    shard: int,
    reader: StateReader,
    files: DeltaFiles,
) -> None:
    nodes = {node.name: node for node in plan.nodes}
    tables = sorted(reader.tables(shard))
    for table in tables:
        if table.partition("/")[0] in change.dropped:
            files.add(shard, table, ((key, None) for key, _ in reader.stored(table, shard)))
    for name, old in {**change.renamed, **change.upgraded, **change.retyped}.items():
        upgrade = _upgrade(nodes[name], stored[old])
        for table in tables:
            own, slash, rest = table.partition("/")
            if own != old:
                continue
            # Values that are converted are no longer divided into segments; the next batches divide large ones again.
            emptied = slash and (rest in _emptied(nodes[name], stored[old]) or (rest == SUFFIX and upgrade is not None))
            if name != old or emptied:
                files.add(shard, table, ((key, None) for key, _ in reader.stored(table, shard)))
            if emptied or (name == old and (slash or upgrade is None)):
                continue
            changed: Iterable[Item] = reader.stored(table, shard)
            if upgrade is not None and not slash:
                changed = _upgraded(reader.stored(table, shard), reader.shard(table, shard), upgrade, moved=name != old)
            if name != old:
                changed = (item for item in changed if item[1] is not None)
            files.add(shard, f"{name}{slash}{rest}", changed)


def _emptied(node: Node, was: OperatorInfo) -> tuple[str, ...]:
    """Return the auxiliary tables of a step that begin empty."""
    conversion = node.operator.conversion(was.layout) if _converts(node, was) else None
    return () if conversion is None else conversion.emptied


def _upgraded(
    items: Iterable[tuple[bytes, bytes]], whole: Iterable[tuple[bytes, bytes]], upgrade: Upgrade, moved: bool
) -> Iterator[Item]:
    """Yield the items of a table as they are to be written: all that are moved to another one, else those that change.

    `whole` has the same items, with states that are stored in segments as one value.
    """
    for (key, stored), (_, raw) in zip(items, whole, strict=True):
        upgraded = upgrade(key, raw)
        if moved or upgraded != stored:
            yield key, upgraded


def _upgrade(node: Node, was: OperatorInfo) -> Upgrade | None:
    """Return the function that converts the stored state of a key; None if it stays unchanged."""
    if _converts(node, was):
        conversion = node.operator.conversion(was.layout)
        if conversion is None:
            # The program was already checked against each shard.
            raise StateError(
                f"step {node.name!r}: some of its shards were kept as {was.layout}, others as "
                f"{node.operator.state_layout}, and one cannot be made of the other; give the step a new name"
            )
        convert = conversion.convert
        if convert is not None:
            return lambda _, raw: convert(raw)
    steps = _value_steps(node, was)
    if not steps:
        return None
    operator = node.operator
    return lambda key, raw: operator.rewritten(
        raw, lambda name, value: steps[name](key, value) if name in steps else value
    )


def _value_steps(node: Node, was: OperatorInfo) -> dict[str, Upgrade]:
    """Return the conversion of each value that a step keeps, by name."""
    now = info_of(node.operator)
    if was.version != now.version:
        stored = {each.name: each.type for each in was.values}
        return {
            name: _by_program(node.name, spec, was.version, stored.get(name))
            for name, spec in node.operator.kept.items()
            if spec.upgrade is not None
        }
    changes = value_changes(node.name, was, now)
    specs = node.operator.kept
    return {
        name: _by_type(node.name, change, specs[name].resolved_codec())
        for name, change in changes.items()
        if not change.is_none
    }


def _by_type(operator: str, change: Change, codec: StateCodec) -> Upgrade:
    """Convert a value to today's type; where it is not certain that all values fit, read it as the program will."""

    def step(key: bytes, raw: bytes) -> bytes:
        try:
            value = raw if change.convert is None else converted(raw, change.convert)
            if change.certain:
                return value
            written = codec.encode(codec.decode(value))
            lost = lost_field(value, written)
            if lost is not None:
                raise StateError(
                    f"the program does not declare {lost}, which is stored: its value would be lost; declare it, or raise "
                    "version= and give upgrade="
                )
        except (NotAsRecorded, StateError, StepError, CorruptError) as error:
            raise StateError(
                f"step {operator!r}, key {from_stored(key)!r}: {error}; or give the step a new name, under which it "
                "begins without state (see docs/howto-change.md). Nothing is changed"
            ) from None
        return written

    return step


def _by_program(operator: str, spec: StateSpec, version: int, stored: StateType | None) -> Upgrade:
    """Convert a value by the program's own function."""
    codec, user = spec.resolved_codec(), spec.upgrade
    assert user is not None
    # The stored value has the fields of its own version: the declared type may not fit it.
    decode = msgpack_codec(Any).decode if spec.codec is None else codec.decode
    fill = None if stored is None else with_defaults(stored)

    def step(key: bytes, raw: bytes) -> bytes | None:
        try:
            value = user(decode(raw if fill is None else converted(raw, fill)), version)
            encoded = None if value is None else codec.encode(value)
            if encoded is not None:
                codec.decode(encoded)
        except Exception as error:
            raise StateError(
                f"step {operator!r}: its upgrade from version {version} to {spec.version} failed on the state of key "
                f"{from_stored(key)!r}: {described(error)}{_hint(error)}; nothing is changed"
            ) from error
        return encoded

    return step


def _hint(error: Exception) -> str:
    """Return a hint for code that reads a field of a stored record, which is a dict."""
    if isinstance(error, AttributeError) and isinstance(error.obj, dict) and error.name in error.obj:
        return f". A stored record comes to upgrade= as a dict: write state[{error.name!r}]"
    return ""
