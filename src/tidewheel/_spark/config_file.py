"""Read run options from a configuration file with profiles, such as `tidewheel.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any

from tidewheel._core.urls import Url
from tidewheel._spark.options import OPTIONS, RunOptions
from tidewheel.errors import ConfigError, TidewheelError

FILE = "tidewheel.toml"

_TABLES = ("run", "profiles")
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]")


def read_options(path: str | PathLike[str], profile: str | None) -> dict[str, Any]:
    """Return the options of a file by name: those of `[run]`, replaced by those of the profile.

    All profiles are checked, so that a development machine finds an error in the profile of production.
    """
    file = _File(Path(path))
    file.check_names((), file.content, _TABLES)
    common = file.checked(file.options("run"), "run")
    profiles = {
        name: file.checked(common | file.options("profiles", name), "profiles", name) for name in file.table("profiles")
    }
    if profile is None:
        return common
    if profile not in profiles:
        known = f"it has {', '.join(profiles)}" if profiles else "it has no [profiles.NAME] table"
        raise ConfigError(f"{file.path} has no profile {profile!r}; {known}{_meant(profile, profiles)}")
    return profiles[profile]


def states(path: str | PathLike[str]) -> dict[str, Url]:
    """Return the state URLs that a file names, by table; none if there is no file or it cannot be read."""
    try:
        file = _File(Path(path))
        tables = [("run",), *(("profiles", name) for name in file.table("profiles"))]
        found = {f"[{'.'.join(names)}]": file.table(*names).get("state") for names in tables}
    except ConfigError:
        return {}
    return {table: Url(state) for table, state in found.items() if isinstance(state, str)}


class _File:
    """A configuration file, with the places of its keys for errors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
            self.content: dict[str, Any] = tomllib.loads(self.text)
        except FileNotFoundError:
            raise ConfigError(f"there is no configuration file {path.absolute()}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the configuration file {path} cannot be read: {error}") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from None

    def table(self, *names: str) -> dict[str, Any]:
        """Return a table of the file; an empty one if it is missing."""
        found = self.content
        for depth, name in enumerate(names, 1):
            found = found.get(name, {})
            if not isinstance(found, dict):
                raise ConfigError(
                    f"{self.where(names[: depth - 1], name)}: {'.'.join(names)} must be a table, written "
                    f"[{'.'.join(names) if names != ('profiles',) else 'profiles.NAME'}], not {found!r}"
                )
        return found

    def options(self, *names: str) -> dict[str, Any]:
        """Return the options in a table, checked."""
        found = self.table(*names)
        self.check_names(names, found, OPTIONS)
        options = {}
        for name, written in found.items():
            options[name] = value = OPTIONS[name].kind.read(written)
            try:
                OPTIONS[name].check(name, value)
            except TidewheelError as error:
                raise ConfigError(f"{self.where(names, name)}: [{'.'.join(names)}] {error}") from None
        return options

    def checked(self, options: dict[str, Any], *names: str) -> dict[str, Any]:
        """Return the options of a table; raise if they exclude each other."""
        try:
            RunOptions(**options)
        except TidewheelError as error:
            raise ConfigError(f"{self.path}, [{'.'.join(names)}]: {error}") from None
        return options

    def check_names(self, names: tuple[str, ...], found: dict[str, Any], allowed: Collection[str]) -> None:
        """Refuse a key that does not exist."""
        for name in found:
            if name not in allowed:
                dashed = name.replace("-", "_")
                meant = f"; did you mean {dashed!r}?" if dashed in allowed else _meant(name, allowed)
                inside = f"[{'.'.join(names)}] has no option" if names else "there is no table"
                raise ConfigError(f"{self.where(names, name)}: {inside} {name!r}{meant} Allowed: {', '.join(allowed)}")

    def where(self, names: tuple[str, ...], key: str) -> str:
        """Return the file and the line of a key, or the file and the key if the line is not found."""
        table: tuple[str, ...] = ()
        assigned = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""")
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = tuple(part.strip(" \"'") for part in header[1].split("."))
                if table == (*names, key):
                    return f"{self.path}, line {number}"
            elif table == names and assigned.match(line):
                return f"{self.path}, line {number}"
        return f"{self.path}, key {'.'.join((*names, key))}"


def _meant(name: str, allowed: Collection[str]) -> str:
    near = get_close_matches(name, allowed, 1)
    return f"; did you mean {near[0]!r}?" if near else "."
