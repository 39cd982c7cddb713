"""The sinks of a plan, as a run uses them: start and stop, publish output, retract output that a restore made void.

A commit records the kind and the place of each sink. Its unpublished output is published there, and its void output is retracted
there. A sink that has another place now is refused, and the error names both places.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.unpublished import is_place, is_void, outputs_of, staged_for, void_sinks
from tidewheel._connectors.sink import Publication, Sink
from tidewheel._core import faults
from tidewheel._engine.phases import Phases
from tidewheel._engine.plan import Plan
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._storage import Store
from tidewheel.errors import StateError

MAX_SEQUENCE = 2**63 - 1

PUBLISHING = faults.declare("publish.before-sink", "a sink is about to publish")


def sinks_of(plan: Plan) -> dict[str, Sink]:
    """Return the sinks of a plan by name."""
    return {node.name: node.operator.sink for node in plan.nodes if isinstance(node.operator, SinkOperator)}


def start_sinks(plan: Plan, stream: str) -> None:
    """Let the sinks of a plan check, before the first batch, that they can write, and can continue the existing output."""
    for sink in sinks_of(plan).values():
        sink.start(stream)
    check_published(plan, stream)


def check_published(plan: Plan, stream: str) -> None:
    """Let the sinks refuse to continue existing output that does not fit."""
    for name, sink in sinks_of(plan).items():
        sink.check(stream, name)


def stop_sinks(plan: Plan, stream: str) -> None:
    """Let the sinks of a plan close their connections and files for a stream."""
    for sink in sinks_of(plan).values():
        sink.stop(stream)


def check_unpublished(plan: Plan, newest: Manifest, drop_unpublished: Collection[str]) -> None:
    """Refuse a program that lacks a sink whose output a crash has left unpublished, or has it at another place."""
    sinks = sinks_of(plan)
    for output in newest.outputs:
        name = output.sink
        if name in drop_unpublished:
            continue
        what = f"job {newest.id.stream_id!r} ended without publishing the output of sequence {outputs_of(newest)} for the sink"
        drop = f"drop this output with --drop-unpublished {name} (drop_unpublished=[{name!r}])"
        if name not in sinks:
            raise StateError(
                f"{what} {name!r}, which the program lacks. Run the program with that sink once more, or {drop}"
            )
        known, place = staged_for(newest, name), sinks[name].place()
        if output.tokens and not is_place(known, place):
            raise StateError(
                f"{what} {name!r}. The output is for {known}, and the sink is {place} now. Run the program once more with the "
                f"sink as it was, which publishes the output, and change the sink then; or {drop}"
            )


def check_void(plan: Plan, newest: Manifest, drop_unpublished: Collection[str]) -> None:
    """Refuse to start after a restore if a sink cannot retract its void output, or the program lacks the sink."""
    void, sinks = newest.retract, sinks_of(plan)
    if void is None:
        return
    what = f"job {newest.id.stream_id!r} was restored to checkpoint {void.after}, and"
    for name, place in void_sinks(newest):
        if name in drop_unpublished:
            continue
        leave = f"leave this output in place with --drop-unpublished {name} (drop_unpublished=[{name!r}])"
        if name not in sinks:
            raise StateError(
                f"{what} the program lacks the sink {name!r}, which has published output after it that must be retracted. Run "
                f"the program with that sink once more, or {leave}"
            )
        if not is_place(place, sinks[name].place()):
            raise StateError(
                f"{what} the sink {name!r} has published output after it that must be retracted from {place}. The sink is "
                f"{sinks[name].place()} now. Run the program once more with the sink as it was, and change the sink then; or "
                f"{leave}"
            )
    for name, sink in sinks.items():
        if not sink.retracts and name not in drop_unpublished:
            raise StateError(
                f"{what} the sink {name!r} ({sink.describe()}) cannot take back what it published after it: the same output "
                f"would be there twice. If that is fine, leave it in place with --drop-unpublished {name} "
                f"(drop_unpublished=[{name!r}]); or restore once more with --keep-output (keep_output=True), which leaves the "
                "output of all sinks"
            )


def check_newest(plan: Plan, newest: Manifest, state: str) -> None:
    """Refuse state that is older than the output in a sink: it was put back from a backup, or belongs to another output."""
    if newest.retract is not None:
        return
    job = newest.id.stream_id
    for name, sink in sinks_of(plan).items():
        published = sink.newest(job, name)
        if published is not None and published > newest.sequence:
            raise StateError(
                f"sink {name!r} has output of commit {published} in {sink.describe()}, and the newest checkpoint of job {job!r} "
                f"at {state} is {newest.sequence}. If the state was put back from a backup, take back the later output: "
                f"tidewheel checkpoints restore {job} {newest.sequence} --state {state}, and start the job. If this is not the "
                "state that the output comes from, start with the right one, or give the job or the sink another name"
            )


def dropped_output(newest: Manifest, drop_unpublished: Collection[str]) -> list[str]:
    """Return messages about output that is dropped because the user said so."""
    return [
        f"sink {output.sink!r}: {output.rows:,} {'row' if output.rows == 1 else 'rows'} of sequence {outputs_of(newest)} are not "
        "published, as drop_unpublished says"
        for output in newest.outputs
        if output.sink in drop_unpublished and output.tokens
    ]


def newest_output(plan: Plan, newest: Manifest | None) -> dict[str, int]:
    """Return the newest published sequence of each sink, if a restore is the reason to retract output; otherwise nothing.

    Call it before the job is claimed. Later, a run that takes over may have published output that is not void.
    """
    if newest is None or newest.retract is None:
        return {}
    job = newest.id.stream_id
    return {name: sink.newest(job, name) or 0 for name, sink in sinks_of(plan).items()}


def take_back(plan: Plan, state: Manifest, published: Mapping[str, int]) -> Iterator[str]:
    """Retract the output that a restore made void; yield a message for each sink. Repeating it is harmless.

    `published` is the result of `newest_output` before the claim. A run that was taken over may call this late and must not ask
    the sinks now: it would mistake its successor's output for output that the restore made void.
    """
    void, job = state.retract, state.id.stream_id
    if void is None:
        return
    for name, sink in sinks_of(plan).items():
        # At the claim, the job had no output after the restore, so output with a higher number is void too.
        is_ahead = published.get(name, 0) >= void.before
        if is_void(state, name, sink.place()) or is_ahead:
            removed = sink.retract(job, name, void.after, MAX_SEQUENCE if is_ahead else void.before)
            if removed is not None:
                yield f"sink {name!r}: took back {removed}, because the job was restored to checkpoint {void.after}"


def known_to_sinks(plan: Plan) -> dict[str, bytes]:
    """Return what the sinks of a plan have learnt since the tasks got them."""
    return {name: known for name, sink in sinks_of(plan).items() if (known := sink.known()) is not None}


def check_output(plan: Plan, folder: Store, state: Manifest, spark: Any) -> None:
    """Let the sinks refuse the output of a commit that is about to be made."""
    for sink, publication in _publications(plan, folder, state, spark):
        sink.before_commit(publication)


def publish_output(plan: Plan, folder: Store, state: Manifest, spark: Any, phases: Phases | None = None) -> None:
    """Make the output that a commit carries visible; `folder` is that of the commit's stream."""
    check_unpublished(plan, state, ())
    for sink, publication in _publications(plan, folder, state, spark):
        faults.point(PUBLISHING)
        began = time.perf_counter()
        sink.publish(publication)
        if phases is not None:
            phases.published(publication.sink, time.perf_counter() - began)


def _publications(plan: Plan, folder: Store, state: Manifest, spark: Any) -> Iterator[tuple[Sink, Publication]]:
    sinks = sinks_of(plan)
    for output in state.outputs:
        yield (
            sinks[output.sink],
            Publication(folder, state.id.stream_id, output.sink, outputs_of(state), output.tokens, spark),
        )
