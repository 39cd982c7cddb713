"""Change the cells of a job in a test."""

from __future__ import annotations

from typing import Any

from tidewheel._cells import open_cells
from tidewheel._cells.job_place import CONFIGURATION
from tidewheel._engine.declaration import declared_by
from tidewheel._program.job import Job


def write_cell(job: Job, name: str, value: Any) -> None:
    """Set a cell that the job declares; None clears it. Raise a `ConfigError` if the job declares no such cell."""
    declared_by(job).cell(job.name, name)
    types = {cell.name: cell.declared for cell in job.declared_cells}
    with open_cells(job.cells_url) as connection:
        cell = connection.writer(name, types[name], namespace=CONFIGURATION)
        cell.where = f"the cell {name!r} of job {job.name!r}"
        if value is None:
            cell.clear()
        else:
            cell.write(value)
