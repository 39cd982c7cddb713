"""Filter and compute whole columns with expressions of `pyarrow.compute`: no Python code runs for each record.

    tidewheel run examples/columns.py --until caught-up

The output is Parquet, in one folder for each city.
"""

from pathlib import Path

import pyarrow.compute as pc

from tidewheel import Job, sinks, sources

DATA = Path(__file__).parent / "data"

job = Job("columns")
trips = job.source(
    "trips",
    sources.files(f"{DATA}/trips", schema="city string, kilometres double, seconds long", header=True),
)
hours = pc.field("seconds").cast("float64") / pc.scalar(3600.0)
(
    trips.filter("real", (pc.field("kilometres") > 0.5) & (pc.field("seconds") > 0))
    .with_columns("speed", kilometres_per_hour=pc.field("kilometres") / hours)
    .select("short", "city", "kilometres_per_hour")
    .sink("out", sinks.files("out/trips", partition_by="city"))
)
