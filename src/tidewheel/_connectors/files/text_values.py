"""Values of a column from text: the only definition of the texts that a column of a CSV or JSON file accepts.

docs/files.md has the same rules for readers. Whatever parses a file in a faster way must give these values, or leave the
text to `converted`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_YEAR = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9][0-9]|[1-9][0-9][0-9][0-9])"
_DAY = _YEAR + r"-[01][0-9]-[0-3][0-9]"
_LOCAL = _DAY + r"([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?)?"
_ZONED = (
    _DAY + r"[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)"
)
_WHOLE = r"[+-]?[0-9]+"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_NOT_FINITE = r"[+-]?([nN][aA][nN]|[iI][nN][fF]([iI][nN][iI][tT][yY])?)"
_BOOLEANS = pa.array(["true", "false"])
_SPACE = " \t"
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the years 1 to 9999, which Python's times have."""


class BadValue(Exception):
    """Raised for text that is not a valid value of its column; the message describes valid values."""


@dataclass(frozen=True)
class TextForm:
    """How the values of a file are written beyond the rules that all files share."""

    times: TimePattern | None = None
    days: TimePattern | None = None


@dataclass(frozen=True)
class TimePattern:
    """A user's pattern of times, such as `dd/MM/yyyy HH:mm`, as a regular expression and the ISO 8601 text of its matches."""

    pattern: str
    expression: str
    iso: str

    @classmethod
    def of(cls, pattern: str) -> TimePattern | None:
        r"""Return the pattern in these terms; None if a letter of it is not supported, or the day is not whole.

        >>> TimePattern.of("dd/MM/yyyy HH:mm").iso
        '\\3-\\2-\\1T\\4:\\5:00'
        """
        groups: dict[str, int] = {}
        expression = ""
        for part in _parts(pattern):
            if part in _LETTERS:
                if part in groups:
                    return None
                groups[part] = len(groups) + 1
                expression += f"({_LETTERS[part]})"
            elif part[0].isalpha():
                return None
            else:
                expression += re.escape(part.strip("'") or "'")
        days = [name for name in ("yyyy", "MM", "dd") if name in groups]
        fraction = next((name for name in groups if name.startswith("S")), None)
        if len(days) < 3 or (fraction is not None and "ss" not in groups):
            return None
        iso = "-".join(f"\\{groups[name]}" for name in days)
        if "HH" in groups:
            times = [f"\\{groups[name]}" if name in groups else "00" for name in ("HH", "mm", "ss")]
            iso += "T" + ":".join(times) + (f".\\{groups[fraction]}" if fraction is not None else "")
        zone = next((name for name in groups if name[0] in "XxZ"), None)
        if zone is not None:
            iso += f"\\{groups[zone]}"
        return cls(pattern, expression, iso)

    def as_iso(self, texts: pa.Array) -> pa.Array:
        """Return the texts in ISO 8601; raise `BadValue` if one does not match the pattern."""
        if not _all_like(self.expression, texts):
            raise BadValue(f"a text like {self.pattern}")
        return pc.replace_substring_regex(texts, f"^{self.expression}$", self.iso)


_ZONE = r"Z|[+-][0-9]{2}:?[0-9]{2}"
_LETTERS: Mapping[str, str] = {
    "yyyy": "[0-9]{4}",
    "MM": "[0-9]{2}",
    "dd": "[0-9]{2}",
    "HH": "[0-9]{2}",
    "mm": "[0-9]{2}",
    "ss": "[0-9]{2}",
    **{"S" * digits: f"[0-9]{{{digits}}}" for digits in range(1, 7)},
    **dict.fromkeys(("XXX", "XX", "X", "xxx", "xx", "Z"), _ZONE),
}


def _parts(pattern: str) -> list[str]:
    """Return runs of one letter, quoted texts and single signs of a pattern."""
    return [found[0] for found in re.finditer(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", pattern, re.DOTALL)]


PLAIN = TextForm()


def expected(kind: pa.DataType, form: TextForm = PLAIN) -> str:
    """Describe the valid texts of a column of this type, for errors."""
    if kinds.is_integer(kind):
        return f"a whole number of {kind.bit_width} bits"
    if kinds.is_floating(kind):
        return f"a number of {kind.bit_width} bits"
    if kinds.is_decimal(kind):
        return f"a number with at most {kind.precision - kind.scale} digits before and {kind.scale} behind the point"
    if kinds.is_boolean(kind):
        return "true or false"
    if kinds.is_date(kind):
        return f"a day like {form.days.pattern if form.days else '2026-03-01'}"
    if kinds.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return f"a time like {form.times.pattern if form.times else '2026-03-01T10:30:00' + zone}"
    return "text" if kinds.is_string(kind) else str(kind)


def is_convertible(kind: pa.DataType) -> bool:
    """Return whether a text can be a value of this type."""
    return bool(
        kinds.is_string(kind)
        or kinds.is_signed_integer(kind)
        or kinds.is_float32(kind)
        or kinds.is_float64(kind)
        or kinds.is_decimal128(kind)
        or kinds.is_boolean(kind)
        or kinds.is_date32(kind)
        or kinds.is_timestamp(kind)
    )


def converted(texts: pa.Array, kind: pa.DataType, form: TextForm = PLAIN, *, trims: bool = False) -> pa.Array:
    """Return the values that these texts are; raise `BadValue` if any of them is none. A null stays null.

    With `trims`, as in CSV, spaces around a value that is not text do not count, and a text of nothing else is null.
    """
    if kinds.is_string(kind):
        return texts
    if trims:
        texts = pc.utf8_trim(texts, _SPACE)
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    try:
        return _converters(texts, kind, form)
    except pa.ArrowInvalid as error:
        raise BadValue(expected(kind, form)) from error


def _converters(texts: pa.Array, kind: pa.DataType, form: TextForm) -> pa.Array:
    if kinds.is_signed_integer(kind):
        _check(_WHOLE, texts, kind, form)
        return pc.replace_substring_regex(texts, r"^\+", "").cast(kind)
    if kinds.is_floating(kind):
        return _floats(texts, kind, form)
    if kinds.is_decimal(kind):
        _check(_NUMBER, texts, kind, form)
        return texts.cast(kind)
    if kinds.is_boolean(kind):
        lower = pc.utf8_lower(texts)
        if pc.all(pc.is_in(lower.drop_null(), _BOOLEANS)).as_py() is False:
            raise BadValue(expected(kind, form))
        return pc.equal(lower, "true")
    if kinds.is_date32(kind):
        if form.days is not None:
            texts = form.days.as_iso(texts)
        _check(_DAY, texts, kind, form)
        return texts.cast(kind)
    if kinds.is_timestamp(kind):
        return _times(texts, kind, form)
    raise BadValue(expected(kind, form))


def _floats(texts: pa.Array, kind: pa.DataType, form: TextForm) -> pa.Array:
    _check(f"({_NUMBER}|{_NOT_FINITE})", texts, kind, form)
    found = texts.cast(kind)
    finite = pc.is_finite(found)
    # A number that is too large becomes infinite; only the text shows whether it was written as infinite.
    if pc.all(finite).as_py() is False:
        _check(_NOT_FINITE, texts.filter(pc.invert(finite)), kind, form)
    return found


def _times(texts: pa.Array, kind: pa.DataType, form: TextForm) -> pa.Array:
    if form.times is not None:
        texts = form.times.as_iso(texts)
    if kind.tz is None:
        _check(_LOCAL, texts, kind, form)
        return texts.cast(pa.timestamp("us")).cast(kind)
    if _all_like(_ZONED, texts):
        found = texts.cast(pa.timestamp("us", "UTC"))
    else:
        # A time without a zone is one of UTC.
        has_zone = pc.match_substring_regex(texts, f"^{_ZONED}$")
        texts = pc.if_else(has_zone, texts, pc.binary_join_element_wise(_with_time(texts), "Z", ""))
        _check(_ZONED, texts, kind, form)
        found = texts.cast(pa.timestamp("us", "UTC"))
    first, last = pc.min_max(found.cast(pa.int64())).values()
    if first.is_valid and (first.as_py() < _FIRST_US or last.as_py() > _LAST_US):
        raise BadValue(f"{expected(kind, form)} in the years 1 to 9999")
    return found.cast(kind)


def _with_time(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, f"^({_DAY})$", r"\1T00:00")


def _check(pattern: str, texts: pa.Array, kind: pa.DataType, form: TextForm) -> None:
    if not _all_like(pattern, texts):
        raise BadValue(expected(kind, form))


def _all_like(pattern: str, texts: pa.Array) -> bool:
    return pc.all(pc.match_substring_regex(texts, f"^({pattern})$")).as_py() is not False


def one_converted(text: str, kind: pa.DataType, form: TextForm = PLAIN, *, trims: bool = False) -> Any:
    """Return the value that a text is, in a form from which Arrow makes an array of the type; `BadValue` if it is none."""
    found = converted(pa.array([text], pa.string()), kind, form, trims=trims)[0]
    if kinds.is_timestamp(kind) or kinds.is_date(kind):
        return found.value
    return found.as_py()


def each_converted(
    texts: Sequence[str | None], kind: pa.DataType, form: TextForm = PLAIN, *, trims: bool = False
) -> tuple[pa.Array, dict[int, BadValue]]:
    """Return the values that texts are, null where a text is none, and by their positions why these are not."""
    bad: dict[int, BadValue] = {}
    try:
        return converted(pa.array(texts, pa.string()), kind, form, trims=trims), bad
    except BadValue:
        values: list[Any] = []
        for position, text in enumerate(texts):
            try:
                values.append(None if text is None else one_converted(text, kind, form, trims=trims))
            except BadValue as error:
                values.append(None)
                bad[position] = error
        return pa.array(values, kind), bad
