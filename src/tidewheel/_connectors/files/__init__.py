"""Files in folders and object stores: sources and sink."""
