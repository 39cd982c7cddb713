"""Which steps read the sources of a program."""

from __future__ import annotations

from tidewheel import Job
from tidewheel._operators.readers import readers
from tidewheel.sinks import discard
from tidewheel.sources import dataframe, files, iterable, kafka, rate


def test_only_a_dataframe_is_read_by_spark(tmp_path):
    sources = {
        "clicks": files(tmp_path, "parquet", schema="user string"),
        "later": files(tmp_path / "later", schema="user string"),
        "items": iterable([1]),
        "topic": kafka("localhost:9092", "clicks"),
        "pace": rate(1),
        "frame": dataframe(lambda spark: None),
    }
    job = Job("clicks", state="memory:clicks")
    for name, source in sources.items():
        job.source(name, source).sink(f"{name}-out", discard())
    assert readers(job.graph) == {**dict.fromkeys(sources, "arrow"), "frame": "spark, because it is a DataFrame"}
