"""The files that bookies and the offloader write: entry logs, journals, indexes, objects."""
