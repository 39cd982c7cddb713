"""Run a part of the acceptance suite on each supported Spark and each available Python: `make matrix`.

Each pair has an environment of its own below `.cache/matrix`, with the versions of the lock, apart from Spark's. The same tests
also run through a Spark Connect server. `make matrix MATRIX="4.1/3.13 4.3/3.12"` runs only these pairs. The last lines are
a table for docs/platforms.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "matrix"
SPARKS = ("4.0", "4.1", "4.2", "4.3")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ACCEPTANCE = (
    "tests/acceptance/test_a1_stateful_map.py",
    "tests/acceptance/test_a9_restart.py",
    "tests/acceptance/test_b8_on_spark.py",
    "tests/acceptance/test_rescale_running.py",
)
BYTECODE = ("tests/unit/core/test_bytecode_reads.py", "tests/unit/core/test_bytecode_update.py")
CLASSIC = (
    *ACCEPTANCE,
    "tests/integration/spark/test_partitioning.py",
    "tests/integration/spark/test_placement.py",
    # Limits of batches hold on every Spark.
    "tests/integration/connectors/test_source_iterable.py",
    "tests/integration/connectors/test_source_nats.py",
)
CONNECT = ("tests/integration/spark/test_connect.py",)
# Spark before 4.2 leaves sockets to the garbage collector.
TOLERATED = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
WITHOUT = {"3.14": {"datasketches"}}
"""Packages of the lock that have no wheel for a Python, and that the tests here do not use."""


def python_of(version: str) -> str | None:
    """Return an installed Python of a minor version: one on the PATH, or one of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    named = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for candidate in filter(None, named):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        if subprocess.run([candidate, "-c", code], capture_output=True, text=True).stdout.strip() == version:
            return candidate
    return None


def environment(spark: str, version: str, python: str) -> Path:
    """Return the Python of an environment with this Spark and, apart from it, the versions of the lock."""
    folder = CACHE / f"{spark}-{version}"
    if not (folder / ".ready").exists():
        # Without hashes, which would then be needed for the other Spark too.
        pinned = re.findall(r"^([^\s#-][^\\\n]*)", (ROOT / "requirements/lock.txt").read_text(), re.M)
        left_out = WITHOUT.get(version, set()) | {"pyspark"}
        others = [line for line in pinned if line.partition("==")[0] not in left_out]
        subprocess.run([uv(), "venv", "--quiet", "--clear", "--python", python, folder], check=True)
        (folder / "requirements.txt").write_text("\n".join([*others, f"pyspark=={spark}.*"]))
        install = [uv(), "pip", "install", "--quiet", "--python", folder / "bin" / "python"]
        subprocess.run([*install, "-r", folder / "requirements.txt"], check=True)
        (folder / ".ready").touch()
    return folder / "bin" / "python"


def uv() -> Path:
    """Return the installer, which shares one copy of each package among the environments."""
    folder = CACHE / "uv"
    if not (folder / "bin" / "uv").exists():
        venv.create(folder, with_pip=True)
        install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"]
        subprocess.run(install, check=True)
    return folder / "bin" / "uv"


def passes(python: Path, *arguments: str) -> bool:
    """Run tests, and return whether all of them pass."""
    warnings = [part for each in TOLERATED for part in ("-W", each)]
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tidewheel._testing.plugin"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    command = [python, "-m", "pytest", "-q", *plugins, *warnings, *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}).returncode == 0


def said(passed: bool) -> str:
    return "passed" if passed else "FAILED"


def main() -> int:
    """Run all pairs, or those that are named; return 1 if one fails."""
    pythons = {version: python_of(version) for version in PYTHONS}
    every = [f"{spark}/{version}" for spark in SPARKS for version, python in pythons.items() if python is not None]
    cells: dict[str, str] = {}
    for pair in sys.argv[1:] or every:
        spark, _, version = pair.partition("/")
        version = version or PYTHONS[0]
        python = pythons[version]
        if python is None:
            raise SystemExit(f"there is no Python {version} here")
        own = environment(spark, version, python)
        # Unit tests run apart: they may start no Spark.
        classic = passes(own, *BYTECODE) and passes(own, *CLASSIC)
        connect = passes(own, "--connect", *ACCEPTANCE) and passes(own, *CONNECT)
        cells[f"{spark}/{version}"] = said(classic) + ("" if connect else ", Connect FAILED")
    found = {pair.partition("/")[0]: None for pair in cells}
    print("\n| Python |" + "".join(f" Spark {spark} |" for spark in found) + "\n|---|" + "---|" * len(found))
    for version in pythons:
        row = [cells.get(f"{spark}/{version}", "–") for spark in found]
        print(f"| {version} | {' | '.join(row)} |")
    return int(any("FAILED" in cell for cell in cells.values()))


if __name__ == "__main__":
    sys.exit(main())
