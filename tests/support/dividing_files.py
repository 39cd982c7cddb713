"""Sources of files that are divided among tasks however small they are."""

from __future__ import annotations

from dataclasses import replace

from tidewheel._connectors.files.source import FileSource
from tidewheel.sources import Source


def dividing_files(source: Source) -> FileSource:
    """Return a source of files that divides every file among tasks."""
    assert isinstance(source, FileSource)
    limits = source.options.limits._replace(divided_bytes=1)
    return FileSource(source.path, source.format, source.schema, replace(source.options, limits=limits))
