"""`tidewheel top`: show all jobs at a state URL, or one job and its steps, live in a terminal."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidewheel._cli.console import console
from tidewheel._cli.duration import duration
from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Verbose
from tidewheel._cli.stored import DEFAULT_STATE, CellsUrl, State, size, when
from tidewheel._time.duration import seconds
from tidewheel._ui.site import Site
from tidewheel._ui.views.batches import batches
from tidewheel._ui.views.figures import PHASES
from tidewheel._ui.views.jobs import jobs, overview

_COLOURS = {
    "running": "green",
    "fleet": "green",
    "perhaps": "yellow",
    "failed": "bold red",
    "unreadable": "bold red",
    "unreachable": "yellow",
    "killed": "bold red",
    "starting": "yellow",
    "stopped": "dim",
    "gone": "dim",
}
_PHASE_COLOURS = ("bright_black", "cyan", "blue", "yellow", "magenta", "white")
_BAR = 28
_BATCHES = 12
_LEAST_S = 0.1


def top(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="One job; by default all.")] = None,
    state: State = DEFAULT_STATE,
    cells: CellsUrl = None,
    every: Annotated[
        str, typer.Option(metavar="TIME", callback=duration, help="The refresh interval; at least 100 ms.")
    ] = "1 s",
    once: Annotated[bool, typer.Option("--once", help="Show the figures once and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures once as JSON.")] = False,
    verbose: Verbose = False,
) -> None:
    """Show all jobs at a state URL, or one job with its steps and newest batches, until Ctrl-C.

    This is `tidewheel ui` for a terminal. It does not disturb runs.

    For example:

        tidewheel top --state s3://bucket/state

        tidewheel top clicks --state s3://bucket/state

        tidewheel top clicks --json | jq .hot_keys
    """
    pause = max(_LEAST_S, seconds(every, "--every"))
    site = Site(state, cells=cells)
    out = console()
    plainly = out.color_system is None or out.no_color

    def look() -> RenderableType:
        return all_jobs(jobs(site)) if job is None else one_job(site, job, plainly)

    try:
        if as_json:
            job_figures = jobs(site) if job is None else overview(site, job) | {"batches": batches(site, job)["bars"]}
            echo(json.dumps(_for_machines(job_figures)))
            return
        if once:
            out.print(look())
            return
        with Live(look(), console=out, screen=out.is_terminal, auto_refresh=False) as live:
            while True:
                time.sleep(pause)
                live.update(look(), refresh=True)
    except KeyboardInterrupt:
        return
    finally:
        site.close()


_AS_IN_STATUS = {"rows_behind": "rows_waiting", "files_behind": "files_waiting", "seconds_behind": "waiting_seconds"}
_MOMENTS = ("now", "at", "committed_at", "worked_at", "since")


def _for_machines(job_figures: Any) -> Any:
    """Return the figures with the names and units of `tidewheel status --json`: times in ns since 1970."""
    if isinstance(job_figures, list):
        return [_for_machines(each) for each in job_figures]
    if not isinstance(job_figures, dict):
        return job_figures
    return {
        _AS_IN_STATUS.get(name, name): round(value * 1e9)
        if name in _MOMENTS and isinstance(value, int | float)
        else _for_machines(value)
        for name, value in job_figures.items()
    }


def all_jobs(rows: list[dict[str, Any]]) -> RenderableType:
    """Return the list of jobs as a table."""
    if not rows:
        return Text("there is no job here yet; start one with this state URL, and it appears by itself")
    table = Table("job", "state", "rows/s", "behind", "commit", "last commit", "where", box=None)
    for column in (2, 3, 4):
        table.columns[column].justify = "right"
    # Only the last column, the host, may shrink when there is too little room.
    for each in table.columns[:-1]:
        each.no_wrap = True
    troubles = [(row["name"], row["error"]) for row in rows if row.get("error")]
    for row in rows:
        table.add_row(
            plain(row["name"]),
            Text(_state(row), _COLOURS.get(row["state"], "")),
            _number(row.get("rate")),
            _behind(row),
            _number(row.get("sequence")),
            _ago(row.get("committed_at"), row.get("now")),
            Text(plain(row.get("host") or "").plain, no_wrap=True, overflow="ellipsis"),
        )
    errors = [plain(f"{name}: {error['text'].partition(chr(10))[0]}", "red") for name, error in troubles]
    return Group(table, Text(), *errors) if errors else table


def one_job(site: Site, name: str, plainly: bool = False) -> RenderableType:
    """Return one job: its status, steps and newest batches; with `plainly`, without relying on colours."""
    job_figures = overview(site, name)
    head = Text.assemble(
        (name, "bold"),
        "  ",
        (_state(job_figures), _COLOURS.get(job_figures["state"], "")),
        f"  {_number(job_figures.get('rate'))} rows/s  {_behind(job_figures)} behind  "
        f"commit {_number(job_figures.get('sequence'))}, {_ago(job_figures.get('committed_at'), job_figures.get('now'))}"
        f"  {'–' if job_figures.get('state_bytes') is None else size(job_figures['state_bytes'])} state",
    )
    error = job_figures.get("error")
    earlier = "the error of an earlier run: " if error and error.get("earlier") else ""
    trouble = [plain(f"{earlier}{error['text']}", "red")] if error else []
    steps = Table("step", "kind", "in/s", "out/s", "busy", "keys", "local", "late", "dead", box=None)
    for column in range(2, 9):
        steps.columns[column].justify = "right"
    for each in job_figures.get("steps", ()):
        steps.add_row(
            plain(each["name"], "bold yellow" if each["slowest"] else ""),
            plain(each["kind"], "dim"),
            _number(each["in_rate"]),
            _number(each["out_rate"]),
            f"{each['busy']:.0%}",
            _number(each["keys"]),
            "" if each["bytes"] is None else size(each["bytes"]),
            _number(each["late"]),
            _number(each["dead"]),
        )
    hot = [
        plain(f"key {each['key']} has {each['share']:.0%} of the messages of {each['step']}", "yellow")
        for each in job_figures.get("hot_keys", ())
    ]
    notes = ["state: the files of the last commit; local: bytes in local copies, as of the commit before"]
    if job_figures.get("worked_at") is not None:
        at = when(int(job_figures["worked_at"] * 1e9))
        notes.insert(0, f"in/s, out/s and busy: of the last active minute of the job, until {at} UTC")
    newest = _figures if plainly else _bars
    last = batches(site, name)["bars"][-_BATCHES:]
    shown = newest(last) if last else Text("no batch is in the history yet", "dim")
    return Group(head, *trouble, Text(), steps, *hot, *(Text(note, "dim") for note in notes), Text(), shown)


def _figures(bars: list[dict[str, Any]]) -> RenderableType:
    """Return the newest batches with the durations of their phases as figures."""
    table = Table("commit", "made (UTC)", "rows", "ms", *PHASES, "other", box=None, padding=(0, 1, 0, 0))
    for column, each in enumerate(table.columns):
        each.justify, each.no_wrap = "left" if column == 1 else "right", True
    for bar in reversed(bars):
        times = (
            _number(seconds * 1000)
            for seconds in (bar["seconds"], *(bar["phases"][phase] for phase in (*PHASES, "other")))
        )
        table.add_row(_number(bar["sequence"]), when(int(bar["at"] * 1e9)), _number(bar["rows"]), *times)
    return Group(table, Text("ms: what the batch took, then its phases, in milliseconds"))


def _bars(bars: list[dict[str, Any]]) -> RenderableType:
    """Return the newest batches as bars, whose phases differ only in colour."""
    legend = Text("  ")
    for phase, colour in zip((*PHASES, "other"), _PHASE_COLOURS, strict=True):
        legend.append("█ ", colour)
        legend.append(f"{phase}  ", "dim")
    table = Table("commit", "made (UTC)", "rows", "took", "", box=None)
    for column in (0, 2, 3):
        table.columns[column].justify = "right"
    most = max((bar["seconds"] for bar in bars), default=0.0)
    for bar in reversed(bars):
        line = Text()
        for phase, colour in zip((*PHASES, "other"), _PHASE_COLOURS, strict=True):
            line.append("█" * round(bar["phases"][phase] / most * _BAR if most else 0), colour)
        table.add_row(
            _number(bar["sequence"]), when(int(bar["at"] * 1e9)), _number(bar["rows"]), f"{bar['seconds']:.2f} s", line
        )
    return Group(table, legend)


def plain(text: str, style: str = "") -> Text:
    """Return text of a job without terminal control characters."""
    return Text(
        "".join(mark if mark.isprintable() or mark == "\n" else "\N{REPLACEMENT CHARACTER}" for mark in text), style
    )


def _state(job: dict[str, Any]) -> str:
    return f"{job['state']}: {job['phase']}" if job.get("phase") else str(job["state"])


def _behind(job: dict[str, Any]) -> str:
    counts = ((job.get(f"{unit}_behind"), unit) for unit in ("rows", "files"))
    return ", ".join(f"{_number(count)} {unit}" for count, unit in counts if count is not None) or _number(None)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _ago(at: float | None, now: float | None) -> str:
    return "–" if at is None else f"{max(0.0, (now or time.time()) - at):.0f} s ago"
