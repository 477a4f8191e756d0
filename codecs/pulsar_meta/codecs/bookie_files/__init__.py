"""Files that bookies and offloaders write: entry logs, journals, ledger indexes, offloaded objects."""
