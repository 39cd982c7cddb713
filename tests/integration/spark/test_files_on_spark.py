"""Files on Spark: the same records, order per key and errors, however files and tasks divide the lines."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path

import pytest

from support.dividing_files import dividing_files
from support.driven import run_divided
from tidewheel import Job, RunOptions, sources
from tidewheel.errors import StepError
from tidewheel.sinks import collect

GOOD = {
    "csv": lambda n: f'"u{n % 5}",{n},{n / 4}',
    "json": lambda n: json.dumps({"user": f"u{n % 5}", "n": n, "f": n / 4}),
}
BAD = {
    "csv": ["", "u1", "u1,x,1", 'u1,"1,2', "u1,0x1F,1", "NA,7,1e999", "u1,1,2,3", '"u1"x,1,1', "\xff,1,1"],
    "json": [
        "",
        "null",
        "[1]",
        '{"user":"u1"}{"user":"u2"}',
        '{"n":1.5}',
        '{"n":"1"}',
        '{"user":7}',
        "{",
        '{"user":"\xff"}',
    ],
}
GAP = {"csv": "u3,,", "json": '{"user":"u3","n":null}'}


def lines(format: str, seed: int) -> list[bytes]:
    """Return lines, most of them records; text of one byte a character, so that some are no UTF-8."""
    draw = random.Random(seed)
    found = []
    for n in range(draw.randint(1, 60)):
        line = draw.choices([GOOD[format](n), GAP[format], draw.choice(BAD[format])], [8, 1, 2])[0]
        found.append(line.encode("latin-1") + draw.choice([b"\n", b"\r\n"]))
    return found


def written(folder: Path, format: str, parts: list[list[bytes]]) -> None:
    folder.mkdir()
    for number, part in enumerate(parts):
        # Later files have names that sort first: their time is what counts.
        path = folder / f"{99 - number}.{format}"
        path.write_bytes(b"".join(part))
        os.utime(path, (1_000 + number, 1_000 + number))


def job_over(folder: Path, state: Path, out, dead=None, divides: bool = False) -> Job:
    job = Job("files", state=f"file://{state}", n_shards=8)
    source = sources.files(folder, schema="user string, n long, f double")
    stream = job.source("in", dividing_files(source) if divides else source, type=dict)
    keyed = stream.key_by("by", lambda record: record["user"] or "")
    keyed.stateful_map("all", lambda user, record, seen: (repr([*seen, record]), [*seen, record]), default=list).sink(
        "out", out
    )
    if dead is not None:
        job.dead_letter("dead", dead)
    return job


def outcome(
    spark, folder: Path, state: Path, parallelism: int, divides: bool = False
) -> tuple[dict[str, list[str]], list[str]]:
    """Return by key the outputs in their order, and the lines that are no records, in any order."""
    out, dead = collect(), collect()
    job = job_over(folder, state, out, dead, divides)
    options = {"until": "end", "parallelism": parallelism, "spark": spark, "local": f"{state}-local", "history": None}
    if divides:
        run_divided(job, **options)
    else:
        job.run(options=RunOptions(**options))
    by_key: dict[str, list[str]] = {}
    for row in out.records:
        by_key.setdefault(row["key"] if "key" in row else row["by"], []).append(row["value"])
    return by_key, sorted(row["record"] for row in dead.records)


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("seed", range(3))
def test_any_division_into_files_and_tasks_gives_one_result(spark, tmp_path, format, seed):
    found = lines(format, seed)
    draw = random.Random(seed)
    written(tmp_path / "whole", format, [found])
    expected = outcome(spark, tmp_path / "whole", tmp_path / "one", 1)
    cuts = sorted(draw.choices(range(len(found) + 1), k=4))
    edges = [0, *cuts, len(found)]
    written(tmp_path / "cut", format, [found[start:end] for start, end in itertools.pairwise(edges)])
    assert outcome(spark, tmp_path / "cut", tmp_path / "two", 3) == expected
    # Each file is divided among tasks, wherever its lines end.
    assert outcome(spark, tmp_path / "cut", tmp_path / "three", 3, divides=True) == expected


@pytest.mark.parametrize("format", ["csv", "json"])
def test_without_dead_letters_the_first_bad_line_stops_the_job(spark, tmp_path, format):
    found = [(GOOD[format](n) + "\n").encode() for n in range(40)]
    for line in (7, 20, 33):
        found[line] = (BAD[format][4] + "\n").encode()
    written(tmp_path / "in", format, [found])
    errors = set()
    for parallelism in (1, 2, 3):
        with pytest.raises(StepError) as failed:
            run_divided(
                job_over(tmp_path / "in", tmp_path / f"state-{parallelism}", collect(), divides=True),
                until="end",
                parallelism=parallelism,
                spark=spark,
                local=f"{tmp_path}/local",
                history=None,
            )
        errors.add(str(failed.value))
    assert len(errors) == 1
    assert f"line 8 of {tmp_path}/in/99.{format}" in errors.pop()
