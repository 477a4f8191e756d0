"""Asking live brokers: connections, lookups, and what a client.conf says of both."""
