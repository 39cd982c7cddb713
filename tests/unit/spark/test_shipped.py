"""Executors can import the shipped code from the archive alone."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tidewheel import Job
from tidewheel._spark.hosts import explained, refuse
from tidewheel._spark.modules import direct, used
from tidewheel._spark.shipping import archive, package_sources, ship, sources_of
from tidewheel.errors import ConfigError
from tidewheel.sinks import collect
from tidewheel.sources import iterable

FILES = {
    "own_program.py": "import own_rates, own_kit.deep.words\ndef f(key, value, n):\n    return own_rates.rate(n), n\n",
    "own_rates.py": "import numpy\nfrom own_far import far\ndef rate(n):\n    return far(n)\n",
    "own_far.py": "def far(n):\n    return n\n",
    "own_kit/__init__.py": "",
    "own_kit/deep/words.py": "WORD = 'deep'\n",
    "own_unused.py": "",
}


@pytest.fixture
def program(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("own_unused")
    yield importlib.import_module("own_program")
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def plan_of(program):
    job = Job("ship", state="memory:ship")
    job.source("in", iterable([1])).key_by("k", lambda n: n).stateful_map("s", program.f, default=0).sink(
        "o", collect()
    )
    return job.plan()


def test_modules_of_the_program_are_found_at_any_distance(program):
    plan = plan_of(program)
    assert "own_program" in direct(plan)
    own, packages = used(plan)
    assert {"own_rates", "own_far", "own_kit", "own_kit.deep.words"} <= own.keys()
    assert "own_unused" not in own
    assert "numpy" in packages


def test_the_archive_alone_has_the_package_and_the_modules(program, tmp_path):
    path = tmp_path / "code.zip"
    path.write_bytes(archive(package_sources() | sources_of(used(plan_of(program))[0])))
    code = (
        f"import sys; sys.path[:] = [{str(path)!r}] + [p for p in sys.path if not p.endswith('/src')]\n"
        "import tidewheel._spark.entry, tidewheel_daemon, own_rates, own_kit.deep.words\n"
        "tidewheel_daemon.preload()\n"
        "print(tidewheel._spark.entry.__file__, own_rates.rate(3), own_kit.deep.words.WORD)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=False)
    assert said.stdout.split() == [f"{path}/tidewheel/_spark/entry.py", "3", "deep"], said.stderr


def test_runs_that_start_together_send_their_code_one_after_another(program):
    handed, meanwhile = [], threading.Event()

    class Context:
        master, applicationId = "local[2]", "two at once"

        def addPyFile(self, path):
            handed.append(path)
            meanwhile.wait(0.2)  # The other comes here now, if nothing keeps it.
            assert handed == [path]

    with ThreadPoolExecutor(2) as runs:
        session = SimpleNamespace(sparkContext=Context())
        for run in [runs.submit(ship, session, plan_of(program)) for _ in range(2)]:
            run.result()
    assert len(handed) == 1


def test_the_same_files_give_the_same_archive():
    assert archive({"a.py": b"1", "b/c.py": b"2"}) == archive({"b/c.py": b"2", "a.py": b"1"})


def test_hosts_that_lack_packages_are_named_with_them():
    answers = [("one", "/bin/python", ["lmdb", "xxhash"]), ("two", "/bin/python", []), ("one", "/bin/python", ["lmdb"])]
    with pytest.raises(ConfigError, match=r"one \(/bin/python\): lmdb, xxhash") as told:
        refuse(answers)
    assert "two" not in str(told.value)
    refuse([("two", "/bin/python", [])])


def test_a_host_without_the_right_python_is_reported():
    text = 'Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.2 executor 1): Cannot run program "/opt/python": error=2'
    assert "the host 10.0.0.2 has no /opt/python" in str(explained(text))
    assert explained("Job aborted due to stage failure: a sum overflowed") is None
