"""Sources of entries: bookies' disks, running bookies, tiered storage and files of frames."""
