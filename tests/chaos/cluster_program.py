"""The chaos job as a program for `tidewheel run`, with the functions that it calls in a neighbouring module."""

from __future__ import annotations

import os

import program

from tidewheel import Job, count, sum_
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files

FOLDER = os.environ["CLUSTER_FOLDER"]


def running(user, record, state: list[int]) -> tuple[dict[str, int], list[int]]:
    return program.running(user, record, state)


def band(key: int, value: dict[str, int], seen: int) -> tuple[dict[str, int], int]:
    return program.band(key, value, seen)


job = Job("chaos", n_shards=8, keep=3, collect_every=4, snapshot_every=3)
source = files(f"{FOLDER}/in", format="json", schema="user string, amount long", max_files_per_trigger=1)
users = job.source("in", source).key_by("by-user", "user")
numbered = users.stateful_map("number", running, default=list)
numbered.sink("numbered", file_sink(f"{FOLDER}/out/numbered", format="json"))
bands = numbered.key_by("by-band", lambda value: value["amount"] % 5).stateful_map("band", band, default=0)
bands.sink("bands", file_sink(f"{FOLDER}/out/bands", format="parquet"))
totals = users.aggregate("totals", total=sum_("amount"), n=count())
totals.sink("totals-out", file_sink(f"{FOLDER}/out/totals", format="json"))
