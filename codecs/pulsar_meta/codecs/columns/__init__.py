"""Decode many entries or records at once, as columns. Needs NumPy."""
