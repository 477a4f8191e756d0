"""Brokers that are registered in a store, and the properties that a broker.conf publishes."""
