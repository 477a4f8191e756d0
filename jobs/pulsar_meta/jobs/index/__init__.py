"""Indexes in the properties of ledgers (PIP-404): build them, check them, and change properties."""
