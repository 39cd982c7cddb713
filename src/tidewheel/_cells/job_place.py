"""The location of a job's cells: its namespaces, and how to recognise it."""

from __future__ import annotations

ORDERS = "job"
"""The namespace of the job's lease and of requests to the job."""
CONFIGURATION = "cells"
"""The namespace of the cells that a program declares."""
LEASES = "leases"
FLEET = "fleet"

NAMESPACES = frozenset({ORDERS, CONFIGURATION, LEASES, FLEET})
"""All namespaces that Tidewheel itself uses in such a location."""

HOLDER = "holder"
"""The cell of the job's lease, which exists wherever a job was started."""
