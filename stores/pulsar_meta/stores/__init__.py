"""Metadata stores. All implement `base.Store`, and `registry.open_store` opens one by its URL."""
