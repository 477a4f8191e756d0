"""Transaction logs and snapshots of transaction buffers."""
