"""Asking the brokers: connections, lookups, and what is registered in the store."""
