"""Cells for coroutines: the same cells, awaited."""

from tidewheel._cells.aio import AsyncCell, AsyncCellReader, AsyncCellWriter, AsyncConnection, AsyncWhen, open

__all__ = ["AsyncCell", "AsyncCellReader", "AsyncCellWriter", "AsyncConnection", "AsyncWhen", "open"]
