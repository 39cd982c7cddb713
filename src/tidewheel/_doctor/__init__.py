"""Check what a job needs before it runs: the session, its hosts, the state URL, local disks and packages."""

from __future__ import annotations

from tidewheel._doctor.examination import examine
from tidewheel._doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine"]
