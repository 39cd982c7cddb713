"""State follows the program: operators with a new name or version get their state as they need it, and the state of
operators that the program has given up goes.

It is one commit of its own, before the first batch: afterwards all state is today's, and neither tasks nor tools know of
earlier names and versions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidewheel._checkpoint.manifest import Manifest, OperatorInfo
from tidewheel._checkpoint.state_files import opener
from tidewheel._core.keys import from_stored
from tidewheel._core.user_code import described
from tidewheel._engine.changed_default import former_defaults, with_defaults
from tidewheel._engine.commit import operator_infos
from tidewheel._engine.compatibility import check_program
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.plan import Plan
from tidewheel._engine.state_type import added_defaults, told_fields
from tidewheel._engine.stored_names import dropped, renamed
from tidewheel._engine.window_change import window_places
from tidewheel._operators.base import Conversion
from tidewheel._operators.graph import Node
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.references import FileRef, ShardParts
from tidewheel._state.shard_contents import shard_items, shard_tables
from tidewheel._state.state_file import Item, StateFile
from tidewheel.errors import StateError

if TYPE_CHECKING:
    from tidewheel._engine.run import ChainRun

_AS_IT_IS = Conversion(None, "")

Upgrade = Callable[[bytes, bytes], bytes | None]
"""From a stored key and its encoded state to the encoded state of today."""


def state_of(node: Node) -> StateSpec | None:
    """Return how a node's state is described, if it is one that a user declares."""
    spec = getattr(node.operator, "state", None)
    return spec if isinstance(spec, StateSpec) else None


def upgrades(plan: Plan) -> frozenset[str]:
    """Return the operators that can make their state from an older version's."""
    specs = {node.name: state_of(node) for node in plan.nodes}
    return frozenset(name for name, spec in specs.items() if spec is not None and spec.upgrade is not None)


def fitted(
    plan: Plan,
    state: Manifest,
    n_shards: int,
    aliases: Mapping[str, Sequence[str]],
    *,
    allow_dropped_state: Collection[str] = (),
    sizes: Mapping[str, str] | None = None,
) -> tuple[Plan, dict[str, Conversion]]:
    """Return the plan that goes on with the state of a manifest, and the conversions of that which it needs.

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
    """Return the plan whose operators go on with stored state, where they can."""
    former = renamed(stored, operator_infos(plan), aliases)
    nodes = []
    for node in plan.nodes:
        was = stored.get(former.get(node.name, node.name))
        operator = None if was is None else node.operator.continuing(was.fingerprint)
        nodes.append(node if operator is None else replace(node, operator=operator))
    return replace(plan, nodes=tuple(nodes))


def conversions(
    plan: Plan, stored: Mapping[str, OperatorInfo], aliases: Mapping[str, Sequence[str]]
) -> dict[str, Conversion]:
    """Return the operators whose stored state has another layout that they can make theirs, with how they do."""
    former = renamed(stored, operator_infos(plan), aliases)
    found = {}
    for node in plan.nodes:
        was = stored.get(former.get(node.name, node.name))
        if was is not None and node.operator.stateful and was.fingerprint != node.operator.state_layout:
            if node.operator.takes(was.fingerprint):
                found[node.name] = _AS_IT_IS
                continue
            conversion = node.operator.conversion(was.fingerprint)
            if conversion is not None:
                found[node.name] = conversion
    return found


def changed_defaults(
    plan: Plan, stored: Mapping[str, OperatorInfo], aliases: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, bytes]]:
    """Return the operators with fields that have another default now, with the encoded ones that stored states stand for."""
    former = renamed(stored, operator_infos(plan), aliases)
    found = {}
    for node in plan.nodes:
        was = stored.get(former.get(node.name, node.name))
        defaults = {} if was is None else _former_defaults(node, was)
        if defaults:
            found[node.name] = defaults
    return found


def evolve(run: ChainRun) -> None:
    """Commit the state under today's names and versions, if it is not so already.

    The program was checked before: operators that it lacks may be dropped. Shards that were adopted from other holders may
    have been kept by other versions of the program than the rest.
    """
    head = run.head
    fetch = opener(run.store, run.stream)
    files = DeltaFiles(run.store, head, run.token)
    evolved, former = False, dict[str, str]()
    for stored, shards in _groups(head):
        change = _change(stored, run.plan, run.job.aliases)
        if change.renamed or change.upgraded or change.dropped:
            evolved = True
            former |= change.renamed
            for shard in shards:
                _evolve_shard(run.plan, stored, change, shard, head.shards[shard], fetch, files)
    if evolved:
        spec = run.spec(head.parallelism, "")
        run.commit(spec, files.reports(), "upgrade", None, operators=operator_infos(run.plan), former=former)


@dataclass(frozen=True)
class _Change:
    """The changes to stored state: operators by their present names, with their former names."""

    renamed: dict[str, str]
    upgraded: dict[str, str]
    dropped: set[str]


def _groups(head: Manifest) -> list[tuple[dict[str, OperatorInfo], list[int]]]:
    """Group the shards by the operators of the program that kept them. The job's own group is first and may be empty."""
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
    known = {node.name: node for node in plan.nodes if node.name in infos and node.name in stored}
    same = {name: name for name, node in known.items() if _differs(stored[name], infos[name], node)}
    return _Change(former, same, set(dropped(stored, infos, aliases)))


def _differs(was: OperatorInfo, now: OperatorInfo, node: Node) -> bool:
    return was.version != now.version or _converts(node, was) or bool(_former_defaults(node, was))


def _former_defaults(node: Node, was: OperatorInfo) -> dict[str, bytes]:
    """Return the defaults of fields that stored states stand for and that the program has changed; an upgrade= gets them too."""
    spec = state_of(node)
    if spec is None or was.version != spec.version:
        return {}
    return former_defaults(was.fields, told_fields(spec))


def _converts(node: Node, was: OperatorInfo) -> bool:
    """Tell whether stored state must be converted to be that of the node's operator."""
    return was.fingerprint != node.operator.state_layout and not node.operator.takes(was.fingerprint)


def _evolve_shard(
    plan: Plan,
    stored: Mapping[str, OperatorInfo],
    change: _Change,
    shard: int,
    parts: ShardParts,
    fetch: Callable[[FileRef], StateFile],
    files: DeltaFiles,
) -> None:
    nodes = {node.name: node for node in plan.nodes}
    tables = sorted(shard_tables(parts, shard, fetch))

    def items(table: str) -> Iterator[tuple[bytes, bytes]]:
        return ((key, value) for _, key, value in shard_items(parts, shard, fetch, table))

    for table in tables:
        if table.partition("/")[0] in change.dropped:
            files.add(shard, table, ((key, None) for key, _ in items(table)))
    for name, old in {**change.renamed, **change.upgraded}.items():
        for table in tables:
            own, slash, rest = table.partition("/")
            if own != old:
                continue
            emptied = slash and rest in _emptied(nodes[name], stored[old])
            if name != old or emptied:
                files.add(shard, table, ((key, None) for key, _ in items(table)))
            if emptied:
                continue
            upgrade = None if slash else _upgrade(nodes[name], stored[old])
            changed = items(table) if upgrade is None else _upgraded(items(table), upgrade, moved=name != old)
            if name != old:
                changed = (item for item in changed if item[1] is not None)
            files.add(shard, f"{name}{slash}{rest}", changed)


def _emptied(node: Node, was: OperatorInfo) -> tuple[str, ...]:
    """Return the tables beside an operator's own that begin empty."""
    conversion = node.operator.conversion(was.fingerprint) if _converts(node, was) else None
    return () if conversion is None else conversion.emptied


def _hint(error: Exception, was: OperatorInfo) -> str:
    """Say how to read what a stored state has: a record is a dict, and some keys may lack fields that came with a default."""
    if isinstance(error, AttributeError) and isinstance(error.obj, dict) and error.name in error.obj:
        return f". A stored record comes to upgrade= as a dict: write state[{error.name!r}]"
    optional = {field.name for field in was.fields if field.name and not field.required}
    if isinstance(error, KeyError) and error.args and error.args[0] in optional:
        field = error.args[0]
        return (
            f". The state of this key is older than its field {field!r}: write state.get({field!r}, …) with its default"
        )
    return ""


def _upgraded(items: Iterable[tuple[bytes, bytes]], upgrade: Upgrade, moved: bool) -> Iterator[Item]:
    """Yield the items of a table as they are to be written: all that are moved to another one, else those that change."""
    pairs = ((key, value, upgrade(key, value)) for key, value in items)
    return ((key, upgraded) for key, value, upgraded in pairs if moved or upgraded != value)


def _upgrade(node: Node, was: OperatorInfo) -> Upgrade | None:
    if _converts(node, was):
        conversion = node.operator.conversion(was.fingerprint)
        if conversion is None:
            # Of each shard alone the program was checked before.
            raise StateError(
                f"operator {node.name!r}: some of its shards were kept as {was.fingerprint}, others as "
                f"{node.operator.state_layout}, and one cannot be made of the other; give the operator a new name"
            )
        convert = conversion.convert
        if convert is not None:
            return lambda _, raw: convert(raw)
    spec, defaults = state_of(node), _former_defaults(node, was)
    if spec is not None and defaults:
        declared = spec.type is not None
        return lambda _, raw: with_defaults(raw, defaults, declared=declared)
    if spec is None or spec.upgrade is None or was.version == spec.version:
        return None
    codec, user = spec.resolved_codec(), spec.upgrade
    # The stored state has the fields of its own time: the declared type may not fit it.
    decode = msgpack_codec(Any).decode if spec.codec is None else codec.decode

    added = {} if spec.codec is not None else added_defaults(was.fields, spec.hint if spec.type is None else spec.type)

    def upgrade(key: bytes, raw: bytes) -> bytes | None:
        try:
            state = decode(raw)
            if isinstance(state, dict):
                state.update({name: decode(default) for name, default in added.items() if name not in state})
            value = user(state, was.version)
            encoded = None if value is None else codec.encode(value)
            if encoded is not None:
                codec.decode(encoded)
        except Exception as error:
            raise StateError(
                f"operator {node.name!r}: its upgrade from version {was.version} to {spec.version} failed on the state of key "
                f"{from_stored(key)!r}: {described(error)}{_hint(error, was)}; nothing is changed"
            ) from error
        return encoded

    return upgrade
