"""Bookie entries, entry frames, and the messages inside them."""
