"""Entries: how to choose, show, filter and check them."""
