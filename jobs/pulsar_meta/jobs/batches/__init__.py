"""Batches: how producers group messages, and how to pack batches into frames."""
