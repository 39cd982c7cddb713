"""Values as Python objects and as Arrow columns.

Names are imported on first use: reading one state from a shell needs rows, but not Arrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewheel._values.batch import Batch
    from tidewheel._values.row import Row, row_class
    from tidewheel._values.shape import ANY, DICT, ROW, SCALAR, Shape, shape_of

__all__ = ["ANY", "DICT", "ROW", "SCALAR", "Batch", "Row", "Shape", "row_class", "shape_of"]

_HOMES = {"Batch": "batch", "Row": "row", "row_class": "row"}


if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any name.
    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'shape')}"), name)
        return value
