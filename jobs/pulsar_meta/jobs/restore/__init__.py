"""Restore the values of one store into another.

`survey` scans both stores before anything is written. `values` decides what happens to each value, and how
far the target's counters must be raised. `topics` selects the values that belong to topics.
"""
