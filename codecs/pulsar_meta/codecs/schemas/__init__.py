"""Schemas of topics, and message values that were written with them."""
