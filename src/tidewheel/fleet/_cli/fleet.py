"""`tidewheel fleet`: show a fleet, drain a node, trim the inbox, skip an event."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated

import msgspec
import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidewheel._cells import open_cells
from tidewheel._checkpoint.fleet_ledger import ORIGIN
from tidewheel._cli.console import console
from tidewheel._cli.duration import duration
from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Commands
from tidewheel._cli.stored import AsJson, JobName, State
from tidewheel._storage import open_store
from tidewheel._time.duration import seconds
from tidewheel.errors import CorruptError, TidewheelError
from tidewheel.fleet._cli.node import Cells, Inbox
from tidewheel.fleet._inbox import Stored, decode_events, open_inbox
from tidewheel.fleet._nodes.assignment import Assignment
from tidewheel.fleet._nodes.chains import Chains
from tidewheel.fleet._nodes.coordinator import NAMESPACE
from tidewheel.fleet._nodes.errors import UnknownFleet, UnknownNode
from tidewheel.fleet._nodes.inbox_retention import needed_from
from tidewheel.fleet._nodes.membership import drains
from tidewheel.fleet._nodes.status import FleetStatus, NodeStatus, Observer

_PAYLOAD_BYTES = 500
"""How many bytes of a skipped event are shown."""

app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Nodes that run one job together.", rich_markup_mode="markdown"
)


@app.command()
def status(
    job: JobName,
    cells: Cells,
    inbox: Inbox,
    state: State,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a fleet: its nodes, the holder of each shard, the lag of each node, and shards that are moving.

    For example:

        tidewheel fleet status clicks --cells etcd://host:2379/fleet --inbox nats://host:4222/clicks --state s3://bucket/state
    """
    with open_cells(cells) as connection, open_inbox(inbox) as opened:
        observer = Observer(connection, Chains(open_store(state), job), opened)
        if as_json:
            echo(msgspec.json.encode(observer.look()).decode())
        elif watch:
            with Live(shown(observer.look()), console=console(), auto_refresh=False) as live:
                while True:
                    time.sleep(1.0)
                    live.update(shown(observer.look()), refresh=True)
        else:
            console().print(shown(observer.look()))


@app.command()
def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")],
    job: Annotated[str, typer.Option("--job", metavar="JOB", help="The job's name.")],
    cells: Cells,
    wait: Annotated[
        str, typer.Option(metavar="TIME", callback=duration, help="How long to wait until the node has left.")
    ] = "60 s",
) -> None:
    """Ask a node to finish its batch, leave, and end; the others take its shards. No event is lost or counted twice.

    For example:

        tidewheel fleet drain a --job clicks --cells etcd://host:2379/fleet
    """
    with open_cells(cells, program="tidewheel fleet drain") as connection:
        assignment = connection.reader(
            f"{job}/assignment", Assignment, namespace=NAMESPACE, type_name="tidewheel.Assignment"
        )
        assigned = assignment.read()
        if assigned is None:
            raise UnknownFleet(f"there is no fleet of job {job!r} at {connection.url}; check the name and the URL")
        if node not in assigned.members:
            known = ", ".join(sorted(assigned.members)) or "none"
            raise UnknownNode(f"there is no node {node!r} in the fleet of {job!r}; its members are: {known}")
        drains(connection, job).write(node, time.time())
        deadline = time.monotonic() + seconds(wait, "--wait")
        while (assigned := assignment.read()) is not None and node in assigned.members:
            if time.monotonic() >= deadline:
                raise TidewheelError(
                    f"node {node!r} has not left within {wait}; it does when its batch is committed. Look at "
                    "`tidewheel fleet status`"
                )
            time.sleep(0.1)
        echo(f"node {node} has left the fleet of {job}")


@app.command()
def trim(
    job: JobName,
    inbox: Inbox,
    state: State,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which events are not needed.")] = False,
) -> None:
    """Delete the events that no node and no kept checkpoint needs. Without trimming, an inbox grows forever.

    A node with `--retention` trims by itself. A file inbox deletes only whole files. Events can be routed and processed
    at the same time. For example, once an hour:

        tidewheel fleet trim clicks --inbox nats://host:4222/clicks --state s3://bucket/state
    """
    with open_inbox(inbox) as opened:
        chains = Chains(open_store(state), job)
        if chains.of(ORIGIN).latest() is None:
            raise UnknownFleet(f"there is no fleet of job {job!r} at {chains.store.url}; check the name and the URL")
        needed = needed_from(chains)
        unread = [shard for shard, position in needed.items() if not position]
        began = min(opened.start().values())
        if unread:
            echo(f"all of {opened.url} is needed: nothing was counted yet of the shards {ranges(sorted(unread))}")
        elif dry_run:
            echo(f"{opened.url} begins at {began} and is needed from {min(needed.values())} on")
        else:
            opened.trim(needed)
            echo(f"{opened.url} begins at {min(opened.start().values())}, before at {began}")


@app.command()
def skip(
    shard: Annotated[int, typer.Argument(metavar="SHARD", help="The event's shard.")],
    position: Annotated[int, typer.Argument(metavar="POSITION", help="The position of its block.")],
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="The producer's number of the event.")],
    inbox: Inbox,
) -> None:
    """Let a job continue without an event that it cannot read. The error that stopped the job names shard, position and number.

    The event stays in the inbox. A job that can read the event still processes it.
    """
    with open_inbox(inbox) as opened:
        found = next(opened.read({shard: position}, opened.end([shard])), None)
        payload = _payload(found, number) if found is not None and found.position == position else None
        if found is not None and payload is not None:
            opened.skip(shard, position, number)
            shown_payload = payload[:_PAYLOAD_BYTES].decode(errors="replace")
            echo(f"event {number} of producer {found.producer} is skipped: {shown_payload}")
            return
        raise TidewheelError(f"{opened.url} has no event {number} at position {position} of shard {shard}")


def _payload(stored: Stored, number: int) -> bytes | None:
    """Return the payload of an event in a block, or None if the block has no such event.

    Data that is not a block counts as one event.
    """
    try:
        events = decode_events(stored)
    except CorruptError:
        return bytes(stored.block.data) if number == stored.block.first else None
    return events.payloads[events.numbers.index(number)] if number in events.numbers else None


def shown(fleet: FleetStatus) -> Group:
    """Return a fleet as tables for people."""
    title = Text(
        f"{fleet.job}: {len(fleet.nodes)} nodes, {fleet.n_shards} shards, epoch {fleet.epoch}, "
        f"{'' if fleet.lag_is_complete else 'more than '}{fleet.lag:,} events behind, "
        f"{fleet.moves} shards on the move"
    )
    nodes = Table("node", "state", "run", "shards", "of", "events", "last commit", "seen", box=None)
    for node in fleet.nodes:
        nodes.add_row(
            node.name,
            _state(node),
            "" if node.run is None else str(node.run),
            str(node.shards),
            str(node.assigned),
            f"{node.events:,}",
            _ago(node.committed),
            _ago(node.renewed),
        )
    shards = Table("shards", "owner", "holder", "behind", "", box=None)
    for (owner, holder, moving), group in _grouped(fleet).items():
        shards.add_row(
            ranges(shard for shard, _ in group),
            owner or "nobody",
            holder or "nobody",
            f"{sum(behind for _, behind in group):,}",
            "moving" if moving else "",
        )
    return Group(title, Text(), nodes, Text(), shards)


def _grouped(fleet: FleetStatus) -> dict[tuple[str | None, str | None, bool], list[tuple[int, int]]]:
    groups: dict[tuple[str | None, str | None, bool], list[tuple[int, int]]] = {}
    for shard in fleet.shards:
        groups.setdefault((shard.owner, shard.holder, shard.moving), []).append((shard.shard, shard.lag))
    return groups


def _state(node: NodeStatus) -> str:
    if not node.member:
        return "gone"
    return "draining" if node.draining else "member"


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s ago"


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as compact ranges.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
