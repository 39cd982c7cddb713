"""The job that continues `old_query.py`. The environment has the folders of input, state and output."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from tidewheel import Job, sinks, sources
from tidewheel.checkpoints import SparkState


@dataclass
class Visits:
    """What is known of a user."""

    n: int = 0
    cents: int = 0
    pages: dict[str, int] = field(default_factory=dict)
    recent: list[int] = field(default_factory=list)
    first: str = ""


def visit(user: str, record: dict[str, Any], state: Visits) -> tuple[dict[str, Any], Visits]:
    page, cents = record["page"], record["cents"]
    pages = {**state.pages, page: state.pages.get(page, 0) + 1}
    new = Visits(state.n + 1, state.cents + cents, pages, [*state.recent, cents][-3:], state.first or page)
    return {"user": user, "n": new.n, "cents": new.cents}, new


job = Job("visits", state=os.environ["VISITS_STATE"])
visits = job.source("in", sources.files(os.environ["VISITS_IN"], format="parquet", max_files_per_trigger=1))
totals = visits.key_by("by-user", "user").stateful_map("visits", visit, state=Visits)
totals.sink("out", sinks.files(os.environ["VISITS_OUT"], format="parquet"))


def from_spark(old: SparkState) -> Visits:
    total = old.values["total"]
    return Visits(total["n"], total["cents"], old.values["pages"], old.values["recent"], old.values.get("first", ""))


migrations = {"visits": from_spark}
