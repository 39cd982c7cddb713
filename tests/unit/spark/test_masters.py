"""The master decides which state URLs are allowed and where local copies are."""

from __future__ import annotations

import pytest

from tidewheel._spark.masters import check_master, check_reachable, is_local, local_folder
from tidewheel.errors import ConfigError

CLUSTER = "spark://host:7077"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,4]"])
def test_tasks_of_a_local_master_run_in_this_process(master):
    assert is_local(master)


@pytest.mark.parametrize("master", [CLUSTER, "yarn", "k8s://https://host:6443", "local-cluster[2,1,512]"])
def test_tasks_of_other_masters_run_elsewhere(master):
    assert not is_local(master)


@pytest.mark.parametrize("master", ["host:7077", "spark:host", "mesos://host:5050", ""])
def test_a_master_that_spark_does_not_know_is_refused_with_examples(master):
    with pytest.raises(ConfigError, match=rf"Spark has no master '{master}': use local.*spark://host:7077, yarn"):
        check_master(master)


def test_yarn_without_its_configuration_is_refused(monkeypatch):
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="set HADOOP_CONF_DIR to the folder"):
        check_master("yarn")
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    for master in ("yarn", CLUSTER, "local", "local[2]", "local-cluster[2,1,512]", "k8s://https://host:6443"):
        check_master(master)


@pytest.mark.parametrize("state", ["file:///data", "file:relative", "/data", "relative/data", "memory:x"])
def test_a_folder_is_refused_where_tasks_run_elsewhere(state):
    with pytest.raises(ConfigError, match="s3://bucket/prefix"):
        check_reachable("clicks", state, CLUSTER, False)
    check_reachable("clicks", state, "local[2]", False)


def test_a_folder_declared_as_shared_is_accepted():
    check_reachable("clicks", "file:///mnt/shared", CLUSTER, True)
    with pytest.raises(ConfigError, match="in the memory of this process"):
        check_reachable("clicks", "memory:x", CLUSTER, True)


def test_an_object_store_is_reached_from_everywhere():
    check_reachable("clicks", "s3://bucket/state", CLUSTER, False)


def test_a_host_chooses_its_folder_unless_one_is_given(monkeypatch):
    monkeypatch.delenv("TIDEWHEEL_LOCAL", raising=False)
    assert "tidewheel-" in local_folder(None)
    monkeypatch.setenv("TIDEWHEEL_LOCAL", "/disk/one")
    assert local_folder("") == "/disk/one"
    assert local_folder("/disk/two") == "/disk/two"


def test_a_relative_folder_is_below_the_folder_that_the_job_is_started_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert local_folder("./x") == local_folder("x") == str(tmp_path / "x")
    monkeypatch.setenv("TIDEWHEEL_LOCAL", "y/../z")
    assert local_folder(None) == str(tmp_path / "z")
