"""Parse one line of CSV by the exact rules in docs/files.md."""

from __future__ import annotations

from dataclasses import dataclass


class Malformed(Exception):
    """Raised for a line that is not valid CSV, with the reason."""


class Unclosed(Malformed):
    """Raised for a line with a quoted field that does not end on this line."""


@dataclass(frozen=True)
class CsvForm:
    """The dialect of CSV files."""

    header: bool | None = None
    """Whether the first line of a file is the names of its columns; None: the program does not say."""
    separator: str = ","
    quote: str = '"'
    """The character around fields that contain separators; empty: none."""
    escape: str = ""
    """The character that escapes the next one in a quoted field; empty: none. A doubled quote is always one quote."""
    null: str = ""
    """An unquoted field with this text is null, like an empty field."""
    multi_line: bool = False
    """Whether a quoted field may have line breaks."""


def fields_of(line: str, form: CsvForm) -> list[str | None]:
    """Return the fields of a line; None for an unquoted field that is empty or the text for null.

    >>> fields_of('a,"b ""c"", d",,""', CsvForm())
    ['a', 'b "c", d', None, '']
    """
    separator, quote = form.separator, form.quote
    if not quote or quote not in line:
        return [_unquoted(text, form) for text in line.split(separator)]
    fields: list[str | None] = []
    at = 0
    while True:
        if line.startswith(quote, at):
            text, at = _quoted(line, at + 1, form)
            if at < len(line) and not line.startswith(separator, at):
                raise Malformed(_text_after_quote(line, at, len(fields) + 1, form))
            fields.append(text)
        else:
            end = line.find(separator, at)
            end = len(line) if end < 0 else end
            fields.append(_unquoted(line[at:end], form))
            at = end
        if at >= len(line):
            return fields
        at += len(separator)


def _unquoted(text: str, form: CsvForm) -> str | None:
    return None if not text or text == form.null else text


def _quoted(line: str, at: int, form: CsvForm) -> tuple[str, int]:
    """Return the text of a quoted field that begins here, and the position after its closing quote."""
    parts = []
    while True:
        end = line.find(form.quote, at)
        if form.escape and form.escape != form.quote:
            escape = line.find(form.escape, at, end if end >= 0 else None)
            if escape >= 0:
                if escape + 1 >= len(line):
                    raise Unclosed(_UNCLOSED)
                parts += [line[at:escape], line[escape + 1]]
                at = escape + 2
                continue
        if end < 0:
            raise Unclosed(_UNCLOSED)
        parts.append(line[at:end])
        at = end + 1
        if not line.startswith(form.quote, at):
            return "".join(parts), at
        parts.append(form.quote)
        at += 1


_UNCLOSED = "a quoted field has no closing quote on this line; give multiLine=True if values have line breaks"


def _text_after_quote(line: str, at: int, number: int, form: CsvForm) -> str:
    hint = "; give escape='\\\\' if a backslash stands before quotes inside of values" if "\\" in line[:at] else ""
    return f"field {number} has {line[at : at + 10]!r} behind its closing quote, where {form.separator!r} was expected{hint}"
