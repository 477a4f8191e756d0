"""What lies on disks: which ledgers in which files, whose they are, and why they are still there."""
