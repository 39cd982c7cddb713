"""Whether Spark's tasks run on this machine or on others, with the consequences for folders and state URLs."""

from __future__ import annotations

import os
import tempfile

from tidewheel.errors import ConfigError

CONNECT = "Spark Connect"
"""Used as the master of a Spark behind Spark Connect, whose real master is unknown."""

LOCAL = "TIDEWHEEL_LOCAL"
"""The environment variable that names the folder of local copies on the host whose environment it is in."""

_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def is_local(master: str | None) -> bool:
    """Return whether tasks run in the driver's own process.

    >>> is_local("local[2]"), is_local("spark://host:7077"), is_local("local-cluster[2,1,512]")
    (True, False, False)
    """
    return master is None or master == "local" or master.startswith("local[")


def is_remote(master: str | None) -> bool:
    """Return whether this is the URL of a server of Spark Connect.

    >>> is_remote("sc://host:15002"), is_remote("spark://host:7077"), is_remote(None)
    (True, False, False)
    """
    return master is not None and master.startswith("sc://")


def check_master(master: str) -> None:
    """Refuse a master that Spark does not know, or YARN without its configuration: Spark's JVM would end with a stack trace.

    >>> check_master("spark://host:7077")
    """
    if not master.startswith(("local", "spark://", "k8s://")) and master != "yarn":
        raise ConfigError(
            f"Spark has no master {master!r}: use local[*], spark://host:7077, yarn, k8s://https://host:443, or sc://host:15002 "
            "for Spark Connect"
        )
    if master == "yarn" and not any(os.environ.get(name) for name in _HADOOP):
        raise ConfigError(
            "the master yarn needs the configuration of the cluster: set HADOOP_CONF_DIR to the folder with yarn-site.xml"
        )


def local_folder(given: str | None) -> str:
    """Return the folder for local copies on this host, as an absolute path, which Spark and all processes need.

    It is the given folder, or that of the environment, or one in the temporary folder.
    """
    folder = given or os.environ.get(LOCAL) or os.path.join(tempfile.gettempdir(), f"tidewheel-{os.getuid()}")
    return os.path.abspath(folder)


def check_reachable(job: str, state: str, master: str | None, shared: bool) -> None:
    """Refuse a state URL that only this host can reach when the tasks run on others."""
    scheme, colon, _ = state.partition(":")
    scheme = scheme if colon and "/" not in scheme else "file"
    if is_local(master) or scheme not in ("file", "memory") or (shared and scheme == "file"):
        return
    where = "a folder" if scheme == "file" else "in the memory of this process"
    hint = (
        "; if it is on a file system that all hosts share under this path, say so with --shared-state "
        "(shared_state=True)"
        if scheme == "file"
        else ""
    )
    raise ConfigError(
        f"the state of job {job!r} is {where}, {state}, and the tasks run on the hosts of {master}: each must reach it. Use an "
        f"object store, such as s3://bucket/prefix{hint}"
    )
