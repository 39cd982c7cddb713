"""The manifests for Kubernetes fit the schemas of its API, each other, and the commands of Tidewheel."""

from __future__ import annotations

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from support.internals import app

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
VERSION = ".".join(kubernetes_validate.latest_version().split(".")[:2])
MANIFESTS = list(yaml.safe_load_all((FOLDER / "job.yaml").read_text()))
BY_KIND = {manifest["kind"]: manifest for manifest in MANIFESTS}
EXECUTOR = yaml.safe_load(BY_KIND["ConfigMap"]["data"]["executor.yaml"])
POD = BY_KIND["Deployment"]["spec"]["template"]
DRIVER = POD["spec"]["containers"][0]
PLACEHOLDER = {"image": "added-by-spark"}


def with_image(pod: dict) -> dict:
    """Return the template as Spark completes it."""
    (container,) = pod["spec"]["containers"]
    metadata = {**pod["metadata"], "name": "clicks-exec-1"}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "containers": [{**container, **PLACEHOLDER}]}}


@pytest.mark.parametrize("manifest", [*MANIFESTS, with_image(EXECUTOR)], ids=lambda manifest: manifest["kind"])
def test_a_manifest_fits_the_schema_of_its_kind(manifest):
    kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_the_schema_refuses_a_field_that_does_not_exist():
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**BY_KIND["Service"], "spec": {"port": [1]}}, VERSION, strict=True)


def test_the_driver_runs_a_command_with_options_that_exist():
    program, command, file = DRIVER["command"]
    run = get_command(app).get_command(None, command)
    options = {option for parameter in run.params for option in parameter.opts}
    assert (program, command, file) == ("tidewheel", "run", "program.py")
    assert {argument.partition("=")[0] for argument in DRIVER["args"]} <= options


def test_names_and_ports_refer_to_each_other():
    conf = dict(re.findall(r"--conf=([\w.]+)=(\S+)", "\n".join(DRIVER["args"])))
    service = BY_KIND["Service"]
    ports = {port["name"]: str(port["port"]) for port in service["spec"]["ports"]}
    assert conf["spark.driver.host"] == service["metadata"]["name"]
    assert ports == {"driver": conf["spark.driver.port"], "blocks": conf["spark.driver.blockManager.port"]}
    assert service["spec"]["selector"] == POD["metadata"]["labels"]
    assert BY_KIND["RoleBinding"]["subjects"][0]["name"] == POD["spec"]["serviceAccountName"]
    assert POD["spec"]["volumes"][0]["configMap"]["name"] == BY_KIND["ConfigMap"]["metadata"]["name"]
    (container,) = EXECUTOR["spec"]["containers"]
    (local,) = [variable["value"] for variable in container["env"] if variable["name"] == "TIDEWHEEL_LOCAL"]
    assert local.startswith(container["volumeMounts"][0]["mountPath"])


def test_the_dockerfile_has_one_spark_version_that_is_supported():
    from tidewheel._spark.versions import check_version

    text = (FOLDER / "Dockerfile").read_text()
    (version,) = set(re.findall(r"apache/spark:(\S+)", text)) | set(re.findall(r"pyspark==([\d.]+)", text))
    check_version(version)
