"""Metadata stores behind one small protocol (`base.Store`), opened by URL (`registry.open_store`)."""
