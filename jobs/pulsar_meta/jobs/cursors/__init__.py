"""Subscriptions: their positions, their backlogs, their persisted state, and conversions of it."""
