"""What brokers write about transactions: records of their logs, and snapshots of transaction buffers."""
