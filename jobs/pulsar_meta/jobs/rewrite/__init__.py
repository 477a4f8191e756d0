"""The one way in which pulsar-meta changes a store: plan, guards, undo records, compare-and-set.

`decision` says what is to become of a value, `plan` writes that down, `guards` refuses what would do harm,
`undo_file` keeps the old bytes, `apply` sends the new ones, `undo` puts the old ones back.
"""
