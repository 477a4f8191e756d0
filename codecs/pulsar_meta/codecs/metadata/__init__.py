"""Records of the metadata store: managed ledgers, cursors, ledger metadata, cookies and scalable topics."""
