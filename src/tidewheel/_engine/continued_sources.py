"""The positions and seen files of a commit, under the names of the program's sources, from which a run continues."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidewheel._checkpoint.manifest import Manifest, Position, SeenFile
from tidewheel._checkpoint.spark_log import GIVEN, OldPosition, by_batch, numbered, old_positions, recorded_kinds
from tidewheel._connectors.source import Source, SourceReader
from tidewheel._connectors.spark.frame_position import frame_position
from tidewheel._engine.plan import Plan
from tidewheel._engine.seen_files import SeenFiles
from tidewheel._engine.stored_names import OFFSETS, check_dropped, drop_option, dropped, renamed
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel.errors import StateError

FRAMES = "dataframe"
"""The kind of a source that Spark reads."""


def check_sources(
    state: Manifest | None,
    sources: Mapping[str, Source],
    aliases: Mapping[str, Sequence[str]],
    allow_dropped_source: Collection[str] = (),
) -> list[str]:
    """Refuse a program that lacks a source of the commit, or has one of another kind. Return the dropped names. Pure."""
    was = recorded_kinds(state)
    now = {name: kind_of(source) for name, source in sources.items()}
    former = renamed(was, now, aliases)
    if state is not None and state.spark is not None:
        # The source itself decides whether it can continue from Spark's log.
        found = old_positions(state.spark)
        for name, source in sources.items():
            if former.get(name, name) in found:
                _adopted(name, former.get(name, name), source, found[former.get(name, name)], [])
    else:
        _check_kinds(was, now, former)
    # In memory every source is of one kind: its records are given.
    check_dropped(OFFSETS, "the job has read", was, now, aliases, allow_dropped_source)
    return dropped(was, now, aliases)


def _check_kinds(was: Mapping[str, str], now: Mapping[str, str], former: Mapping[str, str]) -> None:
    for name, kind in now.items():
        before = was.get(former.get(name, name), GIVEN)
        if before not in (GIVEN, kind):
            raise StateError(
                f"source {name!r} read {before} and now reads {kind}: positions of one are invalid for the other. Give the "
                "new source its own name, and drop the positions of the old source with "
                f"{drop_option(OFFSETS, [former.get(name, name)])}"
            )


def job_sources(plan: Plan) -> dict[str, Source]:
    """Return the sources of a program, by name, in the order of their numbers."""
    return {node.name: node.operator.source for node in plan.nodes if isinstance(node.operator, SourceOperator)}


def kind_of(source: Source) -> str:
    """Return the kind under which a source's position is recorded."""
    return source.kind or FRAMES


def continued(
    head: Manifest,
    sources: Mapping[str, Source],
    aliases: Mapping[str, Sequence[str]],
    seen: SeenFiles,
) -> Manifest:
    """Return the newest commit with the positions of the program's sources under their present names.

    Commits that hold Spark's log are converted.
    """
    former = renamed(recorded_kinds(head), sources, aliases)
    if head.spark is None:
        return _renamed(head, sources, former, seen)
    found, files = old_positions(head.spark), seen.load_old(head)
    positions: dict[str, Position] = {}
    entries: list[SeenFile] = []
    for name, source in sources.items():
        old = found.get(former.get(name, name))
        if old is None:
            continue
        own = numbered(name, old, files) if source.has_reader else by_batch(name, old, files)
        position = _adopted(name, former.get(name, name), source, old, own)
        if position is not None:
            positions[name] = position
            entries += own
    kinds = {name: kind_of(sources[name]) for name in positions}
    return seen.replaced(head.replace(source_offsets=positions, source_kinds=kinds, spark=None), entries)


def check_positions(head: Manifest, readers: Mapping[str, SourceReader], seen: SeenFiles) -> None:
    """Refuse sources that cannot continue at the positions of a commit, which has them under their present names."""
    last = seen.newest(head, head.source_offsets)
    for name, position in head.source_offsets.items():
        try:
            readers[name].check(position, last.get(name))
        except StateError as error:
            raise StateError(
                f"source {name!r}: {error}. Or give the source a new name, with which it is read from its beginning, and go "
                f"on without the position of the old name with {drop_option(OFFSETS, [name])}"
            ) from None


def _adopted(name: str, stored: str, source: Source, old: OldPosition, seen: Sequence[SeenFile]) -> Position | None:
    """Return the position of a source from the entry of Spark's log under its stored name."""
    try:
        return source.adopt(old, seen) if source.has_reader else frame_position(old)
    except StateError as error:
        raise StateError(
            f"source {name!r}: {error}. Give the new source its own name, and drop the positions of the old source "
            f"with {drop_option(OFFSETS, [stored])}"
        ) from None


def _renamed(head: Manifest, sources: Mapping[str, Source], former: Mapping[str, str], seen: SeenFiles) -> Manifest:
    kinds = recorded_kinds(head)
    names = {name: former.get(name, name) for name in sources if former.get(name, name) in kinds}
    positions = {
        name: head.source_offsets[old]
        for name, old in names.items()
        if kinds[old] != GIVEN and old in head.source_offsets
    }
    head = head.replace(source_offsets=positions, source_kinds={name: kinds[old] for name, old in names.items()})
    # A dropped source that comes back is a new source, so no trace of it may remain.
    if not former and kinds.keys() <= {*names.values()}:
        return head
    today = {old: name for name, old in former.items()}
    kept = {*names.values()}
    moved = [
        SeenFile(today.get(file.source, file.source), *_rest(file)) for file in seen.load(head) if file.source in kept
    ]
    return seen.replaced(head, moved)


def _rest(file: SeenFile) -> tuple[str, int, int, int]:
    return file.path, file.number, file.modified_ms, file.size
