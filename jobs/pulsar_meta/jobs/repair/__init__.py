"""Repairs: one module for each kind of damage.

A repair reads a store and, if given, the entries on bookies. It returns a `Repair` with the values that
change, and writes nothing. `jobs/rewrite/run` writes them: it checks the guards, saves the old values in
the undo file, and compares versions. A value that has changed since the repair read it is left alone,
because the other changes depend on it.

A repair lists the data that becomes unreachable. It never deletes anything from bookies and never fences a
ledger. Damage that brokers fix themselves has no repair.
"""
