"""Subscriptions: where they stand, what they have left, what of that is written down; other forms of it."""
