"""State follows the program: operators with a new name or version get their state as they need it, and the state of
operators that the program has given up goes.

It is one commit of its own, before the first batch: afterwards all state is today's, and neither tasks nor tools know of
earlier names and versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._checkpoint.state_files import opener
from tidewheel._core.keys import from_stored
from tidewheel._engine.commit import operator_infos
from tidewheel._engine.compatibility import renamed
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.plan import Plan
from tidewheel._operators.graph import Node
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.shard_contents import shard_table, shard_tables
from tidewheel.errors import StateError

if TYPE_CHECKING:
    from tidewheel._engine.run import JobRun

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


def evolve(run: JobRun) -> None:
    """Commit the state under today's names and versions, if it is not so already.

    The program was checked before: operators that it lacks may be dropped.
    """
    stored, infos = run.head.operators, operator_infos(run.plan)
    former = renamed(stored, infos, run.job.aliases)
    nodes = {node.name: node for node in run.plan.nodes}
    was = {name: former.get(name, name) for name in infos if former.get(name, name) in stored}
    changed = {name: old for name, old in was.items() if name != old or stored[old].version != infos[name].version}
    dropped = set(stored) - set(infos) - set(former.values())
    if not changed and not dropped:
        return
    fetch = opener(run.store, run.job.name)
    files = DeltaFiles(run)
    for shard, parts in sorted(run.head.shards.items()):
        tables = shard_tables(parts, shard, fetch)
        for table in sorted(tables):
            if table.partition("/")[0] in dropped:
                files.add(shard, table, [(key, None) for key in shard_table(parts, shard, fetch, table)])
        for name, old in changed.items():
            for table in sorted(tables):
                own, slash, rest = table.partition("/")
                if own != old:
                    continue
                held = shard_table(parts, shard, fetch, table)
                upgrade = None if slash else _upgrade(nodes[name], stored[old])
                items = held if upgrade is None else {key: upgrade(key, value) for key, value in held.items()}
                if name != old:
                    files.add(shard, table, [(key, None) for key in held])
                    items = {key: value for key, value in items.items() if value is not None}
                files.add(shard, f"{name}{slash}{rest}", list(items.items()))
    gone = dropped | {old for name, old in changed.items() if name != old}
    operators = {name: info for name, info in {**stored, **infos}.items() if name not in gone}
    spec = run.spec(run.head.parallelism, "")
    run.commit(spec, files.finish(), "upgrade", None, operators=operators)


def _upgrade(node: Node, was: OperatorInfo) -> Upgrade | None:
    spec = state_of(node)
    if spec is None or spec.upgrade is None or was.version == spec.version:
        return None
    codec, user = spec.resolved_codec(), spec.upgrade
    # The stored state has the fields of its own time: the declared type may not fit it.
    decode = msgpack_codec(Any).decode if spec.codec is None else codec.decode

    def upgrade(key: bytes, raw: bytes) -> bytes | None:
        try:
            value = user(decode(raw), was.version)
            encoded = None if value is None else codec.encode(value)
            if encoded is not None:
                codec.decode(encoded)
        except Exception as error:
            raise StateError(
                f"operator {node.name!r}: its upgrade from version {was.version} to {spec.version} failed on the state of key "
                f"{from_stored(key)!r}: {type(error).__name__}: {error}; nothing is changed"
            ) from error
        return encoded

    return upgrade
