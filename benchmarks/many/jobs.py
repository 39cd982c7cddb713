"""Run one job in its own process: `python -m benchmarks.many.jobs JOB INPUT WORK RESULT`."""

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.many.flights import SCHEMA

from tidewheel import Job, RunOptions, count, session, sum_, tumbling
from tidewheel.sinks import discard
from tidewheel.sources import files

_DAY = timedelta(days=1)


def delays(aircraft: str, flight: dict[str, Any], state: dict[str, int]) -> tuple[int, dict[str, int]]:
    """Count the flights of an aircraft, and those that were late."""
    state["flights"] = state.get("flights", 0) + 1
    state["late"] = state.get("late", 0) + (flight["delay"] > 15)
    return state["late"], state


def by_map(stream: Any) -> None:
    stream.key_by("by-aircraft", "aircraft").stateful_map("delays", delays, default=dict).sink("delayed", discard())


def by_carriers(stream: Any) -> None:
    days = stream.key_by("by-carrier", "carrier").window("days", tumbling(_DAY), flights=count(), delay=sum_("delay"))
    days.sink("carrier-days", discard())


def by_aircraft(stream: Any) -> None:
    days = stream.key_by("by-tail", "aircraft").window("tail-days", tumbling(_DAY), n=count(), delay=sum_("delay"))
    days.sink("aircraft-days", discard())


def by_sessions(stream: Any) -> None:
    gap = timedelta(hours=12)
    keyed = stream.key_by("by-plane", "aircraft")
    keyed.window("duty", session(gap), n=count(), minutes=sum_("minutes")).sink("duties", discard())


BRANCHES: dict[str, tuple[Callable[[Any], None], ...]] = {
    "map": (by_map,),
    "carriers": (by_carriers,),
    "aircraft": (by_aircraft,),
    "sessions": (by_sessions,),
    "three": (by_map, by_carriers, by_sessions),
}


def job(name: str, folder: Path, state: Path) -> Job:
    """Return one of the jobs over the files of a folder."""
    made = Job("many", state=state.as_uri())
    source = files(str(folder), format="parquet", schema=SCHEMA, max_files_per_trigger=1)
    timed = made.source("flights", source, type=dict).assign_timestamps("departed", "departed")
    on_time = timed.limit_out_of_orderness("month", timedelta(days=31))
    for branch in BRANCHES[name]:
        branch(on_time)
    return made


def main() -> None:
    name, folder, work, result = sys.argv[1:]
    ran = job(name, Path(folder), Path(work) / "state").run(
        until="caught-up", parallelism=2, options=RunOptions(master="local[2]", local=f"{work}/copies")
    )
    batches = [(batch.rows, 1000 * batch.seconds) for batch in ran.batches if batch.rows]
    Path(result).write_text(json.dumps(batches))


if __name__ == "__main__":
    main()
