"""Entries as bookies store and brokers frame them, and the messages inside them."""
