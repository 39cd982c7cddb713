"""PySpark's warning about pandas 3, which says nothing about what Tidewheel uses: Arrow, and no pandas."""

from __future__ import annotations

import warnings


def ignore_pandas_warning() -> None:
    """Ignore the warning in this process. Call it before each use of PySpark that may warn: others may reset the filters."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
