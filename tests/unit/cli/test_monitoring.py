from typer.testing import CliRunner

from support.internals import app


def test_alert_rules_and_dashboard_are_written_to_a_folder(tmp_path):
    written = CliRunner().invoke(app, ["monitoring", str(tmp_path / "new")])
    assert written.exit_code == 0, written.output
    names = ["grafana-dashboard.json", "prometheus-alerts.yml"]
    assert written.output.split() == [str(tmp_path / "new" / name) for name in names]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names


def test_existing_files_are_replaced_only_with_force(tmp_path):
    (tmp_path / "prometheus-alerts.yml").write_text("mine")
    refused = CliRunner().invoke(app, ["monitoring", str(tmp_path)])
    assert (refused.exit_code, "--force" in refused.output) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["prometheus-alerts.yml"]
    assert CliRunner().invoke(app, ["monitoring", str(tmp_path), "--force"]).exit_code == 0
    assert (tmp_path / "prometheus-alerts.yml").read_text() != "mine"
