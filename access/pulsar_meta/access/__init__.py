"""Shared access code of stores, entries and brokers: URLs, credentials, TLS, files and read-only RocksDB."""
