"""The files that a job has taken, by folder: a whole folder is compared with them at once."""

from __future__ import annotations

from collections.abc import Iterable


class TakenFiles:
    """A set of paths. With `by_name_only`, files of the same name in different folders are one file."""

    def __init__(self, *, by_name_only: bool = False) -> None:
        self._by_name_only = by_name_only
        self._names: dict[str, set[str]] = {}

    def add(self, path: str) -> None:
        """Add a file."""
        folder, name = self._key(path)
        self._names.setdefault(folder, set()).add(name)

    def discard(self, path: str) -> None:
        """Remove a file; a file that is not in the set is ignored."""
        folder, name = self._key(path)
        self._names.get(folder, set()).discard(name)

    def __contains__(self, path: object) -> bool:
        folder, name = self._key(str(path))
        return name in self._names.get(folder, ())

    def others(self, folder: str, names: Iterable[str]) -> Iterable[str]:
        """Return the names in a folder that are not taken, in any order."""
        taken = self._names.get("" if self._by_name_only else folder.rstrip("/"))
        # The difference of sets takes half as long as a look-up of each name.
        return set(names) - taken if taken else names

    def _key(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rpartition("/")
        return "" if self._by_name_only else folder, name
