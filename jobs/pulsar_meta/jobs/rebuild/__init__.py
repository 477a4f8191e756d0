"""Rebuild metadata from bookies' disks."""
