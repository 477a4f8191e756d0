"""Schemas of topics: as brokers store them, and the values that messages hold by them."""
