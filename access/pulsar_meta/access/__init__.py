"""What stores, entries and brokers need alike to reach bytes: URLs, credentials, TLS, RocksDB for reading."""
