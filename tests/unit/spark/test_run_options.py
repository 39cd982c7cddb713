"""Run options: allowed values, and how deprecated arguments and configuration files become options."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tidewheel import Job, RunOptions
from tidewheel._engine.batch_loop import Trigger
from tidewheel._program.running import chosen_options
from tidewheel._spark.options import OPTIONS
from tidewheel.errors import ConfigError, GraphError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("options", "ticks", "trigger"),
    [
        ({"every": "5 s"}, False, Trigger(5.0)),
        ({"every": timedelta(milliseconds=250)}, True, Trigger(0.25, 1.0)),
        ({}, False, Trigger()),
        ({"max_batch": "2 seconds"}, False, Trigger(longest=2.0)),
        ({"max_batch": "2 seconds", "until": "caught-up"}, False, Trigger(ends=True, longest=2.0)),
        ({"tick": "500 ms"}, True, Trigger(0.0, 0.5)),
        ({"until": "caught-up"}, True, Trigger(ends=True)),
        ({"until": "end"}, False, Trigger(ends=True)),
    ],
)
def test_the_loop_gets_the_interval_the_tick_and_whether_to_end(options, ticks, trigger):
    assert RunOptions(**options).loop_trigger(ticks=ticks) == trigger


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"until": "now"}, "until must be 'caught-up' or 'end', not 'now'"),
        ({"parallelism": 0}, "parallelism must be a whole number from 1, or 'auto', not 0"),
        ({"parallelism": True}, "parallelism must be a whole number from 1, or 'auto', not True"),
        ({"restarts": None}, "restarts must be a whole number from 0, not None"),
        ({"serve": 70_000}, "serve must be a whole number from 0 to 65535, not 70000"),
        ({"take_over": "yes"}, "take_over must be true or false, not 'yes'"),
        ({"master": ""}, "master must be text, not ''"),
        ({"conf": {"spark.a": 1}}, r"conf must map names of Spark settings to text, .* not \{'spark.a': 1\}"),
        ({"metrics": 1.5}, "metrics must be a port or host:port, such as 9090 or 0.0.0.0:9090, not 1.5"),
        ({"allow_dropped_state": "last"}, r"allow_dropped_state is a list of names, such as \[\"last\"\], not 'last'"),
    ],
)
def test_an_invalid_option_is_refused_by_name(options, message):
    with pytest.raises(ConfigError, match=message):
        RunOptions(**options)


def test_the_history_lasts_a_time_or_is_not_recorded():
    assert RunOptions(history=None).history is None
    with pytest.raises(GraphError, match="history must be at least 1 ns, not '0 s'"):
        RunOptions(history="0 s")


@pytest.mark.parametrize("name", OPTIONS)
def test_the_documentation_lists_every_option_with_its_default_and_meaning(name):
    option = OPTIONS[name]
    default = "" if option.default in (None, ()) else f"`{option.default}`"
    assert f"| `{name}` | {default} | {option.help} |" in (ROOT / "docs" / "running.md").read_text()


def test_the_example_of_the_documentation_is_valid(config):
    text = (ROOT / "docs" / "running.md").read_text()
    config(text.partition("```toml\n")[2].partition("```")[0])
    assert RunOptions.load(profile="production").parallelism == 16


def test_arguments_of_run_take_precedence_over_options():
    options = RunOptions(parallelism=4, restarts=3)
    chosen = chosen_options("run", options, {}, parallelism=2, until=None)
    assert chosen == RunOptions(parallelism=2, restarts=3)


@pytest.mark.parametrize(
    ("old", "now", "options"),
    [
        ({"bounded": True}, r"run\(until='end'\)", RunOptions(until="end")),
        ({"trigger": "available-now"}, r"run\(until='caught-up'\)", RunOptions(until="caught-up")),
        (
            {"trigger": "5 s", "restarts": 3, "conf": None},
            r"run\(every='5 s', options=RunOptions\(restarts=…\)\)",
            RunOptions(every="5 s", restarts=3),
        ),
    ],
)
def test_arguments_of_version_0_1_work_and_warn(old, now, options):
    with pytest.warns(DeprecationWarning, match=now):
        assert chosen_options("run", None, old) == options


def test_the_warning_names_the_line_of_the_program():
    job = Job("old", state="memory:old-arguments")
    with (
        pytest.warns(DeprecationWarning, match="will be refused") as warned,
        pytest.raises(GraphError, match="no source"),
    ):
        job.run(bounded=True)
    assert warned[0].filename == __file__


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tidewheel.toml"

    def write(text: str) -> None:
        path.write_text(text)

    return write


def test_a_profile_replaces_options_of_all_profiles(config):
    config("""
        [run]
        restarts = 5
        history = "none"

        [profiles.laptop]
        every = "1 second"

        [profiles.production]
        state = "s3://bucket/state"
        restarts = 100
        metrics = 9090
        drop_unpublished = ["old"]
        conf = { "spark.executor.memory" = "4g" }
        """)
    assert RunOptions.load() == RunOptions(restarts=5, history=None)
    assert RunOptions.load(profile="laptop") == RunOptions(restarts=5, history=None, every="1 second")
    assert RunOptions.load(profile="production") == RunOptions(
        restarts=100,
        history=None,
        state="s3://bucket/state",
        metrics=9090,
        drop_unpublished=["old"],
        conf={"spark.executor.memory": "4g"},
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run\n", r"tidewheel.toml is not valid TOML: .*line 1"),
        ("[runs]\n", r"tidewheel.toml, line 1: there is no table 'runs'; did you mean 'run'\? Allowed: run, profiles"),
        (
            "[run]\nrestarts = 1\nparalelism = 2\n",
            r"tidewheel.toml, line 3: \[run\] has no option 'paralelism'; did you mean 'parallelism'\? Allowed: until, ",
        ),
        ("[run]\ntake-over = true\n", r"line 2: \[run\] has no option 'take-over'; did you mean 'take_over'\?"),
        (
            '[profiles.laptop]\nevery = "1 second"\n[profiles.staging]\nevery = "1 fortnight"\n',
            r"tidewheel.toml, line 4: \[profiles.staging\] every cannot be read from '1 fortnight'; write it as",
        ),
        (
            "profiles.staging = { restarts = -1 }\n",
            r"key profiles.staging.restarts: \[profiles.staging\] restarts must be a whole number from 0",
        ),
        ("[profiles]\nstaging = 3\n", r"line 2: profiles.staging must be a table, written \[profiles.staging\], not 3"),
        ("[profiles.laptop]\n", "tidewheel.toml has no profile 'staging'; it has laptop"),
        ("[run]\n", r"tidewheel.toml has no profile 'staging'; it has no \[profiles.NAME\] table"),
        (None, "there is no configuration file .*/tidewheel.toml"),
    ],
)
def test_an_error_in_the_file_shows_its_place_and_the_allowed_names(config, text, message):
    if text is not None:
        config(text)
    with pytest.raises(ConfigError, match=message):
        RunOptions.load(profile="staging")


@pytest.mark.parametrize("profile", [None, "laptop"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "paralelism = 16",
            r"line 5: \[profiles.production\] has no option 'paralelism'; did you mean 'parallelism'\?",
        ),
        ("restarts = -1", r"line 5: \[profiles.production\] restarts must be a whole number from 0, not -1"),
        (
            'every = "1 second"',
            r"tidewheel.toml, \[profiles.production\]: until='end' .* so every='1 second' has no effect: leave one out",
        ),
    ],
)
def test_an_error_in_a_profile_that_was_not_chosen_is_found(config, profile, text, message):
    config(f'[run]\nuntil = "end"\n[profiles.laptop]\n[profiles.production]\n{text}\n')
    with pytest.raises(ConfigError, match=message):
        RunOptions.load(profile=profile)


def test_parallelism_is_a_number_or_auto_in_every_place_of_options(config):
    assert [OPTIONS["parallelism"].kind.read(text) for text in ("4", "auto")] == [4, "auto"]
    config('[run]\nparallelism = "auto"\n')
    assert RunOptions.load().parallelism == RunOptions(parallelism="auto").parallelism == "auto"
    with pytest.raises(ConfigError, match="parallelism must be a whole number from 1, or 'auto', not 'many'"):
        RunOptions(parallelism="many")
