"""Disk usage: the ledgers in files, their owners, and why they are still kept."""
