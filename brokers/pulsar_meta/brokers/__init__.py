"""Lookups in live brokers: the protocol, connections, and settings from a client.conf."""
