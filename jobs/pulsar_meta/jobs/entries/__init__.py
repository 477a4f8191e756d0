"""Entries chosen, shown, filtered and checked."""
