"""The settings of a Spark that a run starts."""

from __future__ import annotations

import pytest

from tidewheel._spark.session import settings_for

DAEMON = "spark.python.daemon.module"


def test_settings_of_spark_submit_and_the_user_override_our_defaults():
    settings = settings_for("yarn", {"spark.ui.enabled": "true", "spark.app.name": "a"}, {"spark.app.name": "b"})
    assert (settings["spark.ui.enabled"], settings["spark.app.name"]) == ("true", "b")


@pytest.mark.parametrize(
    "name", ["spark.speculation", "spark.stage.maxConsecutiveAttempts", "spark.shuffle.push.enabled"]
)
def test_exactly_once_needs_no_setting_of_spark(name):
    assert name not in settings_for("spark://host:7077", {}, {})
    assert settings_for("spark://host:7077", {}, {name: "4"})[name] == "4"


def test_executors_elsewhere_start_the_daemon_that_is_sent_to_them():
    assert settings_for("local[2]", {}, {})[DAEMON] == "tidewheel._spark.daemon"
    assert settings_for("k8s://https://host", {}, {})[DAEMON] == "tidewheel_daemon"


def test_only_a_local_spark_is_bound_to_loopback():
    assert settings_for("local[2]", {}, {})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings_for("yarn", {}, {})


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077", "yarn"])
def test_tasks_get_their_rows_through_unix_sockets_with_short_paths(master):
    settings = settings_for(master, {}, {})
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    # Linux allows 107 bytes; Spark adds a dot, a UUID and a suffix to the folder.
    assert len(settings["spark.python.unix.domain.socket.dir"]) < 60
