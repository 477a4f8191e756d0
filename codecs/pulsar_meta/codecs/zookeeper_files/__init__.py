"""ZooKeeper's own files: snapshots of its tree, and the log of transactions that change it."""
