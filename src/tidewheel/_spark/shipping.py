"""Send code to the executors: this package and the user's own modules, in one archive that Spark distributes."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType

from pyspark import SparkContext
from pyspark.sql import SparkSession

import tidewheel
from tidewheel._core.own_code import digest_of, own_code
from tidewheel._engine.plan import Plan
from tidewheel._spark.cluster import application_of, is_connect, master_of
from tidewheel._spark.masters import is_local
from tidewheel._spark.modules import used
from tidewheel._spark.process_folder import process_folder
from tidewheel.errors import ConfigError

DAEMON = "tidewheel_daemon"
"""The module that executors start: it must be importable on a host without the package's dependencies."""

_ROOT = Path(tidewheel.__file__).parent
_EPOCH = (1980, 1, 1, 0, 0, 0)
_shipped: set[tuple[str, str]] = set()
_shipping = threading.Lock()
"""Held while code is given to Spark: `addPyFile` invalidates the caches of imports, which is not thread-safe."""


def ship(spark: SparkSession, plan: Plan | None = None) -> None:
    """Send the code that tasks cannot import: the user modules of a plan, and this package if tasks run on other hosts.

    Sent code takes precedence over code that is installed on a host, so that tasks run the code of their driver.
    """
    elsewhere = not is_local(master_of(spark))
    own = {} if plan is None else used(plan)[0]
    sources = sources_of(own) | (package_sources() if elsewhere else {})
    if not sources:
        return
    if elsewhere and digest_of(sources) != own_code():
        raise ConfigError(
            f"the code of Tidewheel in {_ROOT} was changed after this process had loaded it, so the tasks would run other code "
            "than the driver: start the program again"
        )
    data = archive(sources)
    name = f"tidewheel-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    file = process_folder("code") / name  # Spark reads it whenever an executor is added.
    with _shipping:
        application = application_of(spark)
        if (application, name) in _shipped:
            return
        file.write_bytes(data)
        if is_connect(spark):
            spark.addArtifacts(str(file), pyfile=True)
        else:
            _add_to(spark.sparkContext, file, elsewhere)
        _shipped.add((application, name))


def _add_to(context: SparkContext, file: Path, elsewhere: bool) -> None:
    context.addPyFile(str(file))
    if elsewhere:
        # Workers find the archive by themselves; the process that they are forked from starts before, in the executor's folder,
        # to which Spark has fetched the archive. By its full path it is found on the driver's own host.
        paths = [file.name, str(file), context.environment.get("PYTHONPATH", "")]
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def package_sources() -> dict[str, bytes]:
    """Return the files of this package, and the daemon's under a name of its own."""
    sources = {f"tidewheel/{path.relative_to(_ROOT).as_posix()}": path.read_bytes() for path in _ROOT.rglob("*.py")}
    return {**sources, f"{DAEMON}.py": sources["tidewheel/_spark/daemon.py"]}


def sources_of(modules: Mapping[str, ModuleType]) -> dict[str, bytes]:
    """Return the files of modules, under the paths at which Python looks for them."""
    sources = {}
    for name, module in modules.items():
        file = Path(str(module.__file__))
        if file.suffix == ".py":
            within = "/__init__.py" if hasattr(module, "__path__") else ".py"
            sources[name.replace(".", "/") + within] = file.read_bytes()
    return sources


def archive(sources: Mapping[str, bytes]) -> bytes:
    """Return a zip of the files; the same files give the same bytes."""
    folders = {f"{parent}/" for path in sources for parent in PurePosixPath(path).parents if parent.name}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as written:
        # Python sees a folder without __init__.py in an archive only if the folder has an entry of its own.
        for path in sorted(folders | set(sources)):
            written.writestr(zipfile.ZipInfo(path, _EPOCH), sources.get(path, b""), zipfile.ZIP_DEFLATED)
    return out.getvalue()
