"""The Dockerfile, the Compose file and its program fit together."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from tidewheel._cli.commands import COMMANDS

FOLDER = Path(__file__).parents[2] / "deploy/docker"
_KNOWN = {"FROM", "RUN", "COPY", "USER", "WORKDIR", "ENV", "STOPSIGNAL", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line.strip()]


def test_the_dockerfile_runs_an_existing_command_on_an_existing_file():
    found = dict(instructions())
    assert {name for name, _ in instructions()} <= {
        "FROM",
        "RUN",
        "COPY",
        "USER",
        "WORKDIR",
        "ENV",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    assert yaml.safe_load(found["ENTRYPOINT"]) == ["tidewheel"]
    command, program, *_ = yaml.safe_load(found["CMD"])
    assert command in COMMANDS
    assert (FOLDER / program).is_file()
    extras = re.search(r"\[([a-z,]+)\]", next(line for name, line in instructions() if "pip install" in line))
    assert extras is not None
    declared = (FOLDER.parents[1] / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", declared, re.M) for extra in extras[1].split(","))


def test_the_compose_file_names_only_services_and_volumes_that_it_has():
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        assert {volume.split(":")[0] for volume in service.get("volumes", ())} <= set(compose["volumes"])
        assert ("image" in service) != ("build" in service)
    text = (FOLDER / "program.py").read_text()
    assert all(f"{name}:" in text or f"host={name}" in text for name in ("kafka", "postgres"))
    assert "PASSWORD: tidewheel" not in (FOLDER / "compose.yaml").read_text()


def test_the_program_of_the_compose_file_is_valid():
    ended = subprocess.run(
        [sys.executable, *shlex.split("-m tidewheel graph program.py")], cwd=FOLDER, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
