"""All keys of one `key_by` are of one type: in a task, in a batch, and over all batches of a job. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from tidewheel._core.bytecode_reads import returned_field
from tidewheel._engine.plan import Plan
from tidewheel._operators.annotations import returned
from tidewheel._operators.graph import Node, is_automatic
from tidewheel._operators.joins.join import Join
from tidewheel._operators.keyed.key_by import KeyBy, key_array
from tidewheel.errors import StepError, TidewheelError

_PYTHON: dict[pa.DataType, type] = {
    pa.string(): str,
    pa.int64(): int,
    pa.binary(): bytes,
    pa.bool_(): bool,
    pa.float64(): float,
}
_NUMBERS = frozenset({"int", "float", "bool"})
SIMPLE = tuple(_PYTHON.values())
"""The types of keys that are no tuples."""


def merged_kinds(known: Mapping[str, str], *more: Mapping[str, str], plan: Plan | None = None) -> dict[str, str]:
    """Merge facts about the types of keys; raise a `StepError` if they conflict.

    With a plan, the error names the steps that keep state by such keys.

    >>> merged_kinds({"by": "tuple"}, {"by": "tuple", "by/1": "int"})
    {'by': 'tuple', 'by/1': 'int'}
    """
    merged = dict(known)
    for kinds in more:
        for name, kind in kinds.items():
            if merged.setdefault(name, kind) != kind:
                raise _mixed(name, (merged[name], kind), () if plan is None else _keeping_state(plan, name))
    return merged


def kinds_by_name(operator: str, kinds: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Return the types of a step's keys by its name and the place in tuples; a `StepError` where a place has several.

    >>> kinds_by_name("by", {"": {"tuple"}, "/1": {"int"}})
    {'by': 'tuple', 'by/1': 'int'}
    """
    for place, names in kinds.items():
        if len(names) > 1:
            raise _mixed(f"{operator}{place}", names)
    return {f"{operator}{place}": kind for place, names in kinds.items() for kind in names}


def kinds_of_state(plan: Plan, kinds: Mapping[str, str], stored: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the types of the keys of each stateful step, by its name: those of its `key_by` in `kinds`.

    `stored` has the key types of the stored state of each step, no matter which `key_by` the keys came from. Raise a
    `StepError` if keys of another type come now, or if numbers of two types meet. While the types of new keys are unknown,
    the stored types are returned. A step whose inputs have keys of several types is left out.
    """
    found: dict[str, str] = {}
    for node in plan.nodes:
        if node.operator.stateful:
            kept = _places(node.name, stored or {})
            known = [_places(name, kinds) for name in sorted(plan.key_steps[node.id])]
            if known and all(known):
                if any(each != known[0] for each in known):
                    _check_meeting(plan, node, known)
                    continue
                _check_stored(plan, node, kept, known[0])
                kept |= known[0]
            elif any(_differing(kept, each) for each in known):
                _check_meeting(plan, node, [kept, *known])
                continue
            found |= {f"{node.name}{place}": kind for place, kind in kept.items()}
    return found


def declared_kinds(plan: Plan) -> dict[str, str]:
    """Return the types of the keys of each `key_by` that follow from the program."""
    types = [(node, declared_type(plan, node)) for node in plan.nodes if isinstance(node.operator, KeyBy)]
    return {
        node.name: kind.__name__
        for node, kind in types
        if kind is not None and (kind is not float or _is_column_of_source(plan, node))
    }


def declared_type(plan: Plan, node: Node) -> type | None:
    """Return the type of the keys that a `key_by` makes, as far as the program declares it."""
    assert isinstance(node.operator, KeyBy)
    key = node.operator.key
    if not isinstance(key, str):
        declared = returned(key)
        if declared is not None:
            return declared if declared in SIMPLE else None
    column = key if isinstance(key, str) else returned_field(key)
    port = node.inputs[0]
    kind = None if column is None else plan.nodes[port.node].shapes[port.port].column_type(column)
    if kind is None or pa.types.is_null(kind):
        return None
    try:
        value = key_array(pa.array([None], kind)).type
    except (StepError, pa.ArrowException):
        return None
    return _PYTHON[value]


def _is_column_of_source(plan: Plan, node: Node) -> bool:
    """Return whether keys are an unchanged column of a source: other values that are declared float may be ints in Python."""
    assert isinstance(node.operator, KeyBy)
    port = node.inputs[0]
    return isinstance(node.operator.key, str) and plan.nodes[port.node].shapes[port.port].kind in ("row", "dict")


def check_joins(plan: Plan, kinds: Mapping[str, str], refusal: type[TidewheelError] = StepError) -> None:
    """Refuse the two sides of a join that are known to have no type of keys in common: nothing would pair."""
    for node in plan.nodes:
        if isinstance(node.operator, Join):
            left, right = ({_places(name, kinds).get("") for name in plan.key_steps[port.node]} for port in node.inputs)
            if None not in left | right and not left & right:
                lefts, rights = (" or ".join(sorted(map(str, side))) for side in (left, right))
                raise refusal(
                    f"step {node.name!r}: its left stream has keys of type {lefts}, its right one of type {rights}; "
                    "such keys are never equal, and nothing would pair; convert them in one key_by"
                )


def lasting_kinds(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the key types to record: not those of a `key_by` without a name, which may change with the program.

    >>> lasting_kinds({"by": "str", "key_by:2": "int", "key_by:2/1": "int"})
    {'by': 'str'}
    """
    return {name: kind for name, kind in kinds.items() if not is_automatic(name)}


def without_state(kinds: Mapping[str, str], operators: Collection[str]) -> dict[str, str]:
    """Return the types of the keys of each `key_by`, without the entries of steps (`kinds_of_state`)."""
    return {name: kind for name, kind in kinds.items() if name.partition("/")[0] not in operators}


def stored_kinds(kinds: Mapping[str, str], operators: Collection[str], former: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of steps (`kinds_of_state`) under their present names; `former` maps these to former names.

    >>> stored_kinds({"by": "str", "sum": "str"}, {"sum"}, {"total": "sum"})
    {'total': 'str'}
    """
    names = {name: name for name in operators} | {was: name for name, was in former.items()}
    parts = ((name.partition("/"), kind) for name, kind in kinds.items())
    return {f"{names[name]}{slash}{place}": kind for (name, slash, place), kind in parts if name in names}


def _places(operator: str, kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the types of a step's keys by the place in tuples."""
    return {name.removeprefix(operator): kind for name, kind in kinds.items() if name.partition("/")[0] == operator}


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the places for which both have a type, and different ones."""
    return sorted(place for place in one.keys() & other.keys() if one[place] != other[place])


def _check_stored(plan: Plan, node: Node, stored: Mapping[str, str], present: Mapping[str, str]) -> None:
    for place in _differing(stored, present):
        steps = ", ".join(map(repr, sorted(plan.key_steps[node.id])))
        raise StepError(
            f"step {node.name!r}: {_subject(place[1:], 'the keys')} in its stored state are of type {stored[place]}, and those "
            f"that {steps} gives are of type {present[place]}: none would find its state. Convert them in the key function; or, "
            "if the stored state is not needed, give this step a new name too"
        )


def _check_meeting(plan: Plan, node: Node, known: Sequence[Mapping[str, str]]) -> None:
    """Refuse numbers of two types as keys of one step: 1 and 1.0 are one key to Python, and two to the store."""
    for place in sorted({place for each in known for place in each}):
        kinds = sorted({each[place] for each in known if place in each} & _NUMBERS)
        if len(kinds) > 1 and not isinstance(node.operator, Join):
            steps = ", ".join(map(repr, sorted(plan.key_steps[node.id])))
            raise StepError(
                f"step {node.name!r}: {_subject(place[1:], 'the keys')} that {steps} give are of the types "
                f"{' and '.join(kinds)}; 1, 1.0 and True would have a state each. Convert the keys to one type in the key "
                "functions"
            )


def _keeping_state(plan: Plan, key_by: str) -> list[str]:
    """Return the names of the steps that have state by the keys of a `key_by`."""
    name = key_by.partition("/")[0]
    return [node.name for node in plan.nodes if node.operator.stateful and name in plan.key_steps[node.id]]


def _subject(place: str, keys: str) -> str:
    return f"the numbers at place {place} of its tuple keys" if place else keys


def _mixed(name: str, kinds: Iterable[str], keeping: Sequence[str] = ()) -> StepError:
    operator, _, place = name.partition("/")
    also = f", and to the steps that keep state by its keys: {', '.join(map(repr, keeping))}" if keeping else ""
    # 1, 1.0 and True are one key to a Python dict and three to the store.
    return StepError(
        f"step {operator!r}: {_subject(place, 'all keys')} must be of one type, not {' and '.join(sorted(kinds))}; convert "
        "them in the key function. If earlier batches, or an import, had keys of another type, and their state is not needed, "
        f"give a new name to the step{also}"
    )
