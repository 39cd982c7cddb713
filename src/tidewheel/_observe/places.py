"""The location of a job's history below the state URL.

    .history/<job>/commits/<time>-<run>-<number>   the figures of some hundred commits
    .history/<job>/runs/<time>-<run>               a run and its graph
    .history/<job>/errors/<time>-<run>-<number>    an error
    .history/<job>/lag                             what waits in the sources of the newest run

`<time>` is that of the first record, in ns since 1970. No job's folder begins with a dot, so this cannot be a job's
state. It is not below the job's folder so that the jobs of a URL can be found without listing all their state.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidewheel._checkpoint.names import folder
from tidewheel._storage import Entry

ROOT = ".history"
COMMITS, RUNS, ERRORS = "commits", "runs", "errors"
LAG = "lag"

_NAME = re.compile(r"(\d{20})-([A-Za-z0-9_.]+)(?:-(\d+))?")


class Name(NamedTuple):
    """The parts of an object's name."""

    at: int
    run: str
    number: int


def job_folder(job: str) -> str:
    """Return the folder of a job's history below the state URL."""
    return f"{ROOT}/{folder(job)}"


def object_name(kind: str, at: int, run: str, number: int = 0) -> str:
    """Return the path of an object below the folder of its job."""
    return f"{kind}/{max(at, 0):020}-{run}-{number}"


def time_of(entry: Entry) -> int:
    """Return the time in an object's name; 0 if the name has none."""
    name = parse(entry.path)
    return 0 if name is None else name.at


def parse(path: str) -> Name | None:
    """Parse a path below a folder of history; return None for any other name."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return None if match is None else Name(int(match[1]), match[2], int(match[3] or 0))
