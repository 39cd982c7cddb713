"""A part of the acceptance suite on every supported version of Spark, each in an environment of its own: `make matrix`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
TESTS = (
    "tests/acceptance/test_a1_stateful_map.py",
    "tests/acceptance/test_a9_restart.py",
    "tests/acceptance/test_b8_on_spark.py",
    "tests/acceptance/test_rescale_running.py",
    "tests/unit/spark/test_partitioning.py",
)
"""Nothing here depends on how large a batch is: before 4.2, Spark does not let a Python source limit it."""
# Spark before 4.2 leaves sockets to the garbage collector.
TOLERATED = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def environment(version: str) -> Path:
    """Return the Python of an environment with that Spark and, apart from it, what the lock says."""
    folder = ROOT / ".cache" / "matrix" / version
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True)
        # Without hashes, which pip would then ask of the other Spark too.
        pinned = re.findall(r"^([^\s#-][^\\\n]*)", (ROOT / "requirements/lock.txt").read_text(), re.M)
        others = [line for line in pinned if not line.startswith("pyspark==")]
        (folder / "requirements.txt").write_text("\n".join([*others, f"pyspark=={version}.*"]))
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", folder / "requirements.txt"], check=True)
        subprocess.run([*install, "--no-deps", "--no-build-isolation", "-e", ROOT], check=True)
        (folder / ".ready").touch()
    return python


def main() -> int:
    """Run all versions; return 1 if one fails."""
    outcomes = {}
    for version in sys.argv[1:] or VERSIONS:
        warnings = [part for each in TOLERATED for part in ("-W", each)]
        command = [environment(version), "-m", "pytest", "-q", "-p", "no:xdist", *warnings, *TESTS]
        outcomes[version] = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
        ).returncode
    for version, status in outcomes.items():
        print(f"Spark {version}: {'passed' if status == 0 else 'FAILED'}")
    return int(any(outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
