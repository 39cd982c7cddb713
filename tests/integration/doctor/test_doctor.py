"""`tidewheel doctor`: the output for a good session, and a line that fixes each problem."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from servers.connect_server import running_connect_server
from servers.spark_cluster import python_without_tidewheel
from tidewheel._cli.commands import app
from tidewheel._doctor import examine


def problems(found) -> list[tuple[str, str, str]]:
    return [(finding.subject, finding.text, finding.fix) for finding in found if finding.level == "missing"]


def test_a_session_that_is_fine_has_nothing_missing(spark, tmp_path):
    found = list(examine(f"file://{tmp_path}/state", spark=spark, local=f"{tmp_path}/local"))
    assert problems(found) == []
    assert {finding.subject.split()[0] for finding in found} == {"Python", "packages", "state", "Spark", "host"}
    assert list((tmp_path / "state").iterdir()) == []


def test_the_command_prints_lines_or_json_and_exits_with_0(spark, tmp_path):
    options = ["doctor", "--state", f"file://{tmp_path}/state", "--local", f"{tmp_path}/local"]
    plain = CliRunner().invoke(app, options)
    assert plain.exit_code == 0, plain.output
    assert f"fine     state: file://{tmp_path}/state can be read, written, listed and deleted" in plain.output
    report = json.loads(CliRunner().invoke(app, [*options, "--json"]).output)
    assert report["can_run"] is True
    assert {"subject", "level", "text", "fix"} == set(report["findings"][0])


def test_the_command_exits_with_1_and_says_how_to_fix_each_problem(tmp_path):
    ended = CliRunner().invoke(app, ["doctor", "--state", "s3:", "--remote", "sc://127.0.0.1:1"])
    assert ended.exit_code == 1
    assert "missing  state: the URL s3: names no place" in ended.output
    assert "         fix: correct --state" in ended.output
    assert "missing  Spark: Spark Connect at sc://127.0.0.1:1 does not answer" in ended.output


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """A folder that the server below does not share: it has another file system mounted there."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def server(tmp_path_factory, hidden):
    apart = ["unshare", "--mount", "--map-root-user", "sh", "-c", f'mount -t tmpfs tmpfs {hidden} && exec "$0" "$@"']
    python = python_without_tidewheel(tmp_path_factory.mktemp("python"))
    with running_connect_server(tmp_path_factory.mktemp("connect"), python, apart) as url:
        yield url


def test_hosts_that_share_the_state_are_fine(server, tmp_path):
    found = list(examine(f"file://{tmp_path}/state", server, local=f"{tmp_path}/local"))
    assert problems(found) == []
    assert "reads and writes the state; start the job with --shared-state" in [finding.text for finding in found]


def test_a_folder_that_hosts_do_not_share_is_refused(server, hidden, tmp_path):
    (found,) = problems(examine(f"file://{hidden}/state", server, local=f"{tmp_path}/local"))
    assert f"does not share the state at file://{hidden}/state: " in found[1]
    assert found[2].startswith("use an object store, such as --state s3://bucket/prefix")


def test_a_host_without_a_package_is_refused(server, tmp_path, monkeypatch):
    (tmp_path / "only_in_the_driver.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = problems(examine(f"file://{tmp_path}/state", server, packages={"only_in_the_driver"}))
    assert found[0].startswith("host ")
    assert found[1].endswith("bin/python has no only_in_the_driver")
    assert "Install their dependencies on every host, or send them as a packed environment" in found[2]
