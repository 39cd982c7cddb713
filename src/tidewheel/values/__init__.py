"""Values as Python sees them and as Arrow carries them."""

from tidewheel.values.batch import Batch
from tidewheel.values.row import Row, row_class
from tidewheel.values.shape import ANY, DICT, ROW, SCALAR, Shape, shape_of

__all__ = ["ANY", "DICT", "ROW", "SCALAR", "Batch", "Row", "Shape", "row_class", "shape_of"]
