"""Values as Python sees them and as Arrow carries them."""

from tidewheel._values.batch import Batch
from tidewheel._values.row import Row, row_class
from tidewheel._values.shape import ANY, DICT, ROW, SCALAR, Shape, shape_of

__all__ = ["ANY", "DICT", "ROW", "SCALAR", "Batch", "Row", "Shape", "row_class", "shape_of"]
