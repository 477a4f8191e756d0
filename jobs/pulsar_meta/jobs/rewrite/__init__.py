"""Changes to a store.

`run` controls a rewrite: `rules` decides about each value, if necessary in a process of its own (`worker`),
`guards` refuses harmful changes, `undo_log` saves the old bytes, and `apply` sends the new ones. `plan`
records the changes of a run and applies them later; `undo` restores the old values.
"""
