"""The table of old and new names in docs/migrating.md: every old form behaves as its row says."""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tidewheel
from support.internals import app
from tidewheel import Job, RunOptions, agg, codecs, sinks, sources
from tidewheel.errors import GraphError, TidewheelError
from tidewheel.fleet import Router, open_inbox
from tidewheel.testing import run_in_memory

ROOT = Path(__file__).parents[2]
Form = Callable[[], Any]
"""An old form; it returns what the new form is compared with, if anything."""


def table() -> dict[str, str]:
    """Return what the page says about each old form."""
    text = (ROOT / "docs" / "migrating.md").read_text().partition("## Names")[2].partition("## Words")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    return {old: effect for old, _, effect in rows}


def numbers(*values: Any) -> Any:
    return Job("old", state="memory:old-forms").source("in", sources.iterable(values))


def timed(stream: Any) -> Any:
    return stream.assign_timestamps("at", lambda n: n).limit_out_of_orderness("order", "5 s")


def unpacked(stream: Any) -> None:
    _first, _second = stream


def branched() -> list[list[Any]]:
    job = Job("branched", state="memory:branched")
    low, high = job.source("in", sources.iterable([1, 5])).branch("size", lambda n: n < 3, lambda n: n >= 3)
    low.sink("low", sinks.collect())
    high.sink("high", sinks.collect())
    run = run_in_memory(job)
    return [run.outputs["low"], run.outputs["high"]]


def started(**old: Any) -> None:
    """Give old arguments to `run`. A job without a source is refused after the arguments were read."""
    with pytest.raises(GraphError, match="no source"):
        Job("empty", state="memory:old-forms-empty").run(**old)


def command(*written: str) -> Form:
    """Give old options to `tidewheel run`, with a profile that does not exist, so that nothing starts."""

    def given() -> None:
        ended = CliRunner().invoke(app, ["run", "program.py", "--profile", "missing", *written])
        for line in ended.output.splitlines():
            if line.startswith("warning: "):
                warnings.warn(line, DeprecationWarning, stacklevel=1)
        if ended.exit_code == 2:
            raise TidewheelError(ended.output)

    return given


def state_move() -> None:
    ended = CliRunner().invoke(app, ["state", "move", "clicks", "clicks-2", "ada"])
    if ended.exit_code == 2:
        raise TidewheelError(ended.output)


def extra() -> None:
    if "ui" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]:
        warnings.warn("pip: tidewheel does not provide the extra 'ui'", DeprecationWarning, stacklevel=1)


def dead_letter() -> Any:
    """Read the old column of a dead letter."""
    job = Job("dead", state="memory:old-forms-dead")
    job.source("in", sources.iterable([0])).map("divide", lambda n: 1 // n).sink("out", sinks.collect())
    job.dead_letter("dead", sinks.collect())
    return run_in_memory(job).outputs["dead"][0]["operator"]


def linger() -> None:
    with open_inbox("inbox", n_shards=2) as inbox:
        Router(inbox, linger=0.05)


def words_of(folder: str, *old: str) -> Form:
    """Raise if none of the old words is in the code of a folder."""

    def searched() -> None:
        files = [path for path in (ROOT / "src" / "tidewheel" / folder).rglob("*") if path.is_file()]
        found = {word for path in files for word in old if word.encode() in path.read_bytes()}
        if not found:
            raise AttributeError(f"{folder} has none of {old}")

    return searched


FORMS: dict[str, list[Form]] = {
    "`assign_timestamps(…)`, then": [lambda: timed(numbers(1)).late],
    "`on_time, late = s.limit_out_of": [lambda: unpacked(timed(numbers(1)))],
    "`records, dead = s.decode(…)`": [lambda: unpacked(numbers(b"1").decode("decode", codecs.json(int)))],
    "`low, high = s.branch(": [branched],
    "`s.map(": [lambda: numbers(1).map("double", lambda n: 2 * n).key_by("by", lambda n: n)],
    "`job.source(…, value=": [
        lambda: Job("old", state="memory:old-forms").source("in", sources.iterable([1]), value=int)
    ],
    "`sum_`, `min_`, `max_`": [
        lambda: (
            [tidewheel.sum_("n"), tidewheel.min_("n"), tidewheel.max_("n")]
            == [agg.sum("n"), agg.min("n"), agg.max("n")]
        )
    ],
    "`run(bounded=True)`": [lambda: started(bounded=True), command("--bounded")],
    '`run(trigger="available-now")`': [
        lambda: started(trigger="available-now"),
        lambda: started(trigger="once"),
        command("--trigger", "available-now"),
    ],
    '`run(trigger="5 seconds")`': [lambda: started(trigger="5 seconds"), command("--trigger", "5 seconds")],
    '`trigger="direct"`': [lambda: started(trigger="direct"), command("--trigger", "direct")],
    "other arguments of `run`": [lambda: started(restarts=3)],
    "`files(ordered=True)`": [lambda: sources.files("in/", ordered=True)],
    "`files(reader=…)`": [
        lambda: sources.files("in/", reader="spark"),
        lambda: sources.files("in/", mergeSchema=True),
    ],
    '`kafka(connector="python")`': [lambda: sources.kafka("localhost:9092", "orders", connector="python")],
    '`kafka(connector="spark")`': [lambda: sources.kafka("localhost:9092", "orders", connector="spark")],
    "`in_driver=True`": [lambda: started(in_driver=True), command("--in-driver")],
    "`timeout=5`": [
        lambda: sources.kafka("localhost:9092", "orders", timeout=5),
        linger,
        lambda: RunOptions(lease=5),
        command("--lease", "5"),
    ],
    "`--allow-dropped-state`": [command("--allow-dropped-state"), command("--allow-dropped-source")],
    "`pip install": [extra],
    "`errors.OperatorError`": [lambda: tidewheel.errors.OperatorError, lambda: tidewheel.testing.OperatorTester],
    "`query(operator=…)`": [lambda: Job("old", state="memory:old-forms").query(operator="total", key="ada")],
    "the column `operator`": [dead_letter],
    "metrics `tidewheel_operator_": [words_of("_observe", "tidewheel_operator_")],
    "metric `tidewheel_batch_step": [words_of("_observe", "tidewheel_batch_step_")],
    "`operator`, `operators` in": [words_of("_cli", '"operator":', '"operators":')],
    "`tidewheel state move`": [state_move, lambda: tidewheel.StoredJob.move_to],
    "in sources of your own": [
        lambda: sources.Source.direct,
        lambda: sources.Source.why_spark,
        lambda: sources.Source.continues,
        lambda: sources.Source.doubts,
    ],
    "in sinks of your own": [lambda: sinks.Sink.minds_absent_fields],
    "`tidewheel.cluster`": [lambda: import_module("tidewheel.cluster"), lambda: tidewheel.checkpoints.CheckpointState],
}
"""The old forms of each row, by how the row begins."""


def rows() -> list[tuple[str, str, list[Form]]]:
    return [
        (old, effect, next((forms for start, forms in FORMS.items() if old.startswith(start)), []))
        for old, effect in table().items()
    ]


@pytest.mark.parametrize(("old", "effect", "forms"), rows(), ids=lambda value: value if isinstance(value, str) else "")
def test_an_old_form_behaves_as_the_table_says(old, effect, forms, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert forms, f"no check for the row {old}"
    for form in forms:
        match re.split(r"[: ]", effect.removeprefix("pip "))[0]:
            case "works":
                assert form() is not False
            case "warns":
                with pytest.warns(DeprecationWarning, match=".+"):
                    form()
            case "refused":
                with pytest.raises(TidewheelError):
                    form()
            case "gone":
                with pytest.raises((AttributeError, ImportError, KeyError, TypeError, TidewheelError)):
                    form()
            case _:
                pytest.fail(f"the table does not define {effect!r}")


def test_every_check_has_a_row():
    assert [start for start in FORMS if not any(old.startswith(start) for old in table())] == []
