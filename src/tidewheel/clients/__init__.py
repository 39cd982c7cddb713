"""Connections to servers, used by whatever speaks to them: inboxes, sources and sinks."""
