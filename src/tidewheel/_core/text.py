"""Values and names as text for errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from xxhash import xxh64_hexdigest

_SPOKEN_AS_A_VOWEL = re.compile(r"[aeio]|u(?!u|ni|rl|sa|se)|hour", re.IGNORECASE)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All control characters of terminals except tabs and line breaks, and those that reverse text."""


def printable(text: str) -> str:
    r"""Return a text that is safe for a terminal: control characters are escaped.

    >>> printable("\x1b[2Jgone\n")
    '\\x1b[2Jgone\n'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shortened(value: Any, limit: int = 500, *, told_apart: bool = False) -> str:
    """Return a value as it looks in Python, truncated to a readable length.

    `told_apart`: add a hash to a truncated text, so that values with the same beginning differ.

    >>> shortened("a" * 20, limit=4)
    "'aaa… (22 characters)"
    >>> shortened("a" * 20, limit=4, told_apart=True)
    "'aaa… (22 characters, #120738c4)"
    """
    text = _repr(value)
    if len(text) <= limit:
        return text
    digest = f", #{xxh64_hexdigest(text.encode(errors='surrogatepass'))[:8]}" if told_apart else ""
    return f"{text[:limit]}… ({len(text)} characters{digest})"


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:
        # Nested too deeply, a number with too many digits, or a class whose repr fails.
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def text_of(error: BaseException) -> str:
    """Return the text of an error, even if its class fails to produce one."""
    try:
        return str(error)
    except Exception as failure:
        return f"<an error whose text cannot be shown: {type(failure).__name__}>"


def valid(text: str) -> str:
    r"""Return a text that files, messages and databases can store: lone surrogates and U+0000 become escapes.

    >>> valid("a\ud800b\x00")
    'a\\ud800b\\x00'
    """
    if not text.isascii():
        text = text.encode(errors="backslashreplace").decode()
    return text.replace("\0", "\\x00") if "\0" in text else text


def cut(text: str, limit: int) -> str:
    """Truncate a text that is too long.

    >>> cut("abcdef", 3)
    'abc… (6 characters)'
    """
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def listed(words: Iterable[str]) -> str:
    """Return words as a list in English.

    >>> listed(["key", "value", "state"])
    'key, value and state'
    """
    *before, last = words
    return " and ".join(filter(None, (", ".join(before), last)))


def names_there(name: object, there: Collection[str]) -> str:
    """Return the existing names, and those that a missing name probably means.

    >>> names_there("order", ["orders", "payments"])
    "it has 'orders' and 'payments'. Did you mean 'orders'?"
    >>> names_there("order", [])
    'it has none'
    """
    near = get_close_matches(name, there, 1) if isinstance(name, str) else ()
    question = f". Did you mean {near[0]!r}?" if near else ""
    return f"it has {listed(map(repr, there)) if there else 'none'}{question}"


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article.

    >>> [with_article(noun) for noun in ("Order", "window", "UUID", "URL", "hour")]
    ['an Order', 'a window', 'a UUID', 'a URL', 'an hour']
    """
    return f"{'an' if _SPOKEN_AS_A_VOWEL.match(noun) else 'a'} {noun}"


def no_attribute(module: str, name: str, names: Sequence[str]) -> AttributeError:
    """Return the error for a missing name of a module, with the name that was probably meant.

    >>> no_attribute("tidewheel.sinks", "postgresql", ["files", "postgres"]).args
    ("module 'tidewheel.sinks' has no 'postgresql'; did you mean 'postgres'? There are files, postgres",)
    """
    near = get_close_matches(name, names, 1)
    meant = f"did you mean {near[0]!r}? There" if near else "there"
    return AttributeError(f"module {module!r} has no {name!r}; {meant} are {', '.join(names)}", name=name)
