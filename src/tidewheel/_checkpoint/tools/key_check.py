"""Check that a looked-up key has the type of a step's keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from tidewheel._checkpoint.tools.text import key_candidates, shown
from tidewheel._core.keys import kinds_of
from tidewheel.errors import WrongKeyType

_PLAIN: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bytes": bytes,
    "bool": bool,
    "tuple": tuple,
}
"""The types of stored keys. A user's subclass is read back as its base type."""


def check_kind(operator: str, key: Any, kinds: Mapping[str, str]) -> None:
    """Raise `WrongKeyType` if a step's keys are known to have another type than this key.

    `kinds` comes from a manifest. `1` and `"1"` are different keys: the wrong one would look like a key without state.
    """
    for place, (given, *_) in kinds_of([key]).items():
        wanted = kinds.get(f"{operator}{place}", given)
        if wanted == given or wanted not in _PLAIN:
            continue
        if place:
            where = place.removeprefix("/")
            raise WrongKeyType(f"the numbers at place {where} of the keys of {operator!r} are {wanted}, not {given}")
        other = _as(wanted, key)
        if other is None:
            hint = f"; the key given is {key!r}. A key is JSON in a shell: 7, '\"7\"', '[\"a\", 1]'"
        else:
            hint = f": give {other!r}, not {key!r}. It is {_in_a_shell(other)} in a shell"
        raise WrongKeyType(f"keys of {operator!r} are {wanted}, not {given}{hint}")


class Answer(Protocol):
    """The answer to a question about a key."""

    @property
    def found(self) -> bool:
        """Whether the key has state."""


A = TypeVar("A", bound=Answer)


def either(get: Callable[[Any], A], text: str) -> A:
    """Return the result for a key given as text or JSON. A number can be a number or text: the one that has state is used."""
    answers, refused = [], None
    for candidate in key_candidates(text):
        try:
            answers.append(get(candidate))
        except WrongKeyType as error:
            refused = refused or error
    if refused is not None and not answers:
        raise refused
    return next((answer for answer in answers if answer.found), answers[0])


def _as(wanted: str, key: Any) -> Any:
    """Convert a plain key to another plain type; return None if that is not possible."""
    if wanted not in ("str", "int", "float") or not isinstance(key, str | int | float) or isinstance(key, bool):
        return None
    try:
        other = _PLAIN[wanted](key)
    except (ValueError, OverflowError):
        return None
    return other if str(key) in (str(other), f"{other}.0") or other == key else None


def _in_a_shell(key: Any) -> str:
    return f"'{shown(key)}'" if isinstance(key, str) else shown(key)
