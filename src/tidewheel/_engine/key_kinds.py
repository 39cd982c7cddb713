"""All keys of one `key_by` are of one type: in a task, in a batch, and over all batches of a job. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidewheel.errors import OperatorError


def merged_kinds(known: Mapping[str, str], *more: Mapping[str, str]) -> dict[str, str]:
    """Return what is known of the types of keys, with more of it; an `OperatorError` where the two differ.

    >>> merged_kinds({"by": "tuple"}, {"by": "tuple", "by/1": "int"})
    {'by': 'tuple', 'by/1': 'int'}
    """
    merged = dict(known)
    for kinds in more:
        for name, kind in kinds.items():
            if merged.setdefault(name, kind) != kind:
                raise _mixed(name, (merged[name], kind))
    return merged


def kinds_by_name(operator: str, kinds: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Return the types of an operator's keys by its name and the place in tuples; an `OperatorError` where a place has several.

    >>> kinds_by_name("by", {"": {"tuple"}, "/1": {"int"}})
    {'by': 'tuple', 'by/1': 'int'}
    """
    for place, names in kinds.items():
        if len(names) > 1:
            raise _mixed(f"{operator}{place}", names)
    return {f"{operator}{place}": kind for place, names in kinds.items() for kind in names}


def _mixed(name: str, kinds: Iterable[str]) -> OperatorError:
    operator, _, place = name.partition("/")
    what = f"the numbers at place {place} of its tuple keys" if place else "all keys"
    # 1, 1.0 and True are one key to a Python dict and three to the store.
    return OperatorError(
        f"operator {operator!r}: {what} must be of one type, not {' and '.join(sorted(kinds))}; convert them in the "
        "key function. If earlier batches, or an import, had keys of another type, and their state is not needed, "
        "give the operator a new name"
    )
