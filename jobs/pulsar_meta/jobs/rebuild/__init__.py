"""Metadata made again from bookies' disks alone."""
