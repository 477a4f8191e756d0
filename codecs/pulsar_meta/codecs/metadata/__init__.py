"""What brokers and bookies keep in the metadata store: managed ledgers, cursors, ledger metadata, cookies."""
