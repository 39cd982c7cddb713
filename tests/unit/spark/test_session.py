"""The settings of a Spark that a run starts."""

from __future__ import annotations

import pytest

from tidewheel._spark.session import check_session, settings_for
from tidewheel.errors import ConfigError

DAEMON = "spark.python.daemon.module"


def test_what_spark_submit_and_the_user_say_goes_before_our_defaults():
    settings = settings_for("yarn", {"spark.ui.enabled": "true", "spark.app.name": "a"}, {"spark.app.name": "b"})
    assert (settings["spark.ui.enabled"], settings["spark.app.name"]) == ("true", "b")


def test_what_exactly_once_depends_on_is_not_for_choice():
    needed = {
        "spark.speculation": "false",
        "spark.shuffle.push.enabled": "false",
        "spark.stage.maxAttempts": "1",
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.stage.ignoreDecommissionFetchFailure": "false",
    }
    given = dict.fromkeys(needed, "other")
    settings = settings_for("spark://host:7077", given, given)
    assert {name: settings[name] for name in needed} == needed


def test_executors_elsewhere_start_the_daemon_that_is_sent_to_them():
    assert settings_for("local[2]", {}, {})[DAEMON] == "tidewheel._spark.daemon"
    assert settings_for("k8s://https://host", {}, {})[DAEMON] == "tidewheel_daemon"


def test_only_a_local_spark_is_bound_to_loopback():
    assert settings_for("local[2]", {}, {})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings_for("yarn", {}, {})


class Started:
    """A Spark that runs, as far as its settings are looked at."""

    def __init__(self, master, **changed):
        settings = settings_for(master, {}, {}) | {name.replace("_", "."): value for name, value in changed.items()}
        self.sparkContext, self.master = self, master
        self._settings = {name: value for name, value in settings.items() if value is not None}

    def getConf(self):
        return self._settings


STAGES = ["spark_stage_maxAttempts", "spark_stage_maxConsecutiveAttempts", "spark_stage_ignoreDecommissionFetchFailure"]


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("value", [None, "true", "4"])
def test_a_cluster_that_may_run_a_stage_again_is_refused_by_the_name_of_the_setting(name, value):
    check_session(Started("spark://host:7077"))
    with pytest.raises(ConfigError, match=f"Tidewheel needs {name.replace('_', '.')}="):
        check_session(Started("spark://host:7077", **{name: value}))


@pytest.mark.parametrize("name", ["spark_shuffle_push_enabled", "spark_speculation"])
@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_what_is_right_by_default_may_be_left_out_and_not_be_turned_on(name, master):
    check_session(Started(master, **{name: None}))
    with pytest.raises(ConfigError, match=f"started with true; start it with --conf {name.replace('_', '.')}=false"):
        check_session(Started(master, **{name: "true"}))


def test_a_local_spark_of_the_users_own_may_lack_what_is_said_of_stages():
    check_session(Started("local[2]", **dict.fromkeys(STAGES)))
