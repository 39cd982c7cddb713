"""The settings of a Spark that a run starts."""

from __future__ import annotations

from tidewheel._spark.session import settings_for

DAEMON = "spark.python.daemon.module"


def test_what_spark_submit_and_the_user_say_goes_before_our_defaults():
    settings = settings_for("yarn", {"spark.ui.enabled": "true", "spark.app.name": "a"}, {"spark.app.name": "b"})
    assert (settings["spark.ui.enabled"], settings["spark.app.name"]) == ("true", "b")


def test_what_exactly_once_depends_on_is_not_for_choice():
    given = {"spark.speculation": "true", "spark.stage.maxConsecutiveAttempts": "4"}
    settings = settings_for("spark://host:7077", given, given)
    assert (settings["spark.speculation"], settings["spark.stage.maxConsecutiveAttempts"]) == ("false", "1")


def test_executors_elsewhere_start_the_daemon_that_is_sent_to_them():
    assert settings_for("local[2]", {}, {})[DAEMON] == "tidewheel._spark.daemon"
    assert settings_for("k8s://https://host", {}, {})[DAEMON] == "tidewheel_daemon"


def test_only_a_local_spark_is_bound_to_loopback():
    assert settings_for("local[2]", {}, {})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings_for("yarn", {}, {})
