"""FieldGetter: a column's name where a function of the value is expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel._values.records import field_names, has_fields, optional_field
from tidewheel.errors import StepError


@dataclass(frozen=True)
class FieldGetter:
    """A function that returns a field of a value."""

    name: str

    def __call__(self, value: Any) -> Any:
        """Return the field, or raise an error that lists the fields of the value."""
        if not has_fields(type(value)) or self.name not in field_names(value):
            raise StepError(f"the value has no field {self.name!r}")
        return optional_field(value, self.name)
