"""FieldGetter: a column's name where a function of the value is expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel._values import Shape
from tidewheel._values.records import field_names, has_fields, optional_field
from tidewheel.errors import GraphError, StepError


@dataclass(frozen=True)
class FieldGetter:
    """A function that returns a field of a value."""

    name: str

    def __call__(self, value: Any) -> Any:
        """Return the field, or raise an error that lists the fields of the value."""
        if not has_fields(type(value)) or self.name not in field_names(value):
            raise StepError(f"the value has no field {self.name!r}")
        return optional_field(value, self.name)


def check_field(function: Any, shape: Shape) -> None:
    """Raise if a function is the name of a column that values of this shape do not have."""
    known = shape.columns()
    if isinstance(function, FieldGetter) and known is not None and function.name not in known:
        raise GraphError(f"there is no column {function.name!r}; {shape.describe()} has {', '.join(known)}")
