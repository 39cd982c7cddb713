"""A place where a job has its cells: which namespaces are there, and how to tell that it is one."""

from __future__ import annotations

ORDERS = "job"
"""The namespace of the job's lease and of the orders given to it."""
CONFIGURATION = "cells"
"""The namespace of the cells that a program declares."""
LEASES = "leases"
FLEET = "fleet"

NAMESPACES = frozenset({ORDERS, CONFIGURATION, LEASES, FLEET})
"""All that Tidewheel itself keeps in such a place."""

HOLDER = "holder"
"""The cell of the job's lease: it stands wherever a job was started."""
