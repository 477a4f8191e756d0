"""ZooKeeper's files: snapshots of its tree, and transaction logs."""
