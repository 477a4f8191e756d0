"""The one way in which pulsar-meta changes a store.

`run` conducts: `scope` says which values are meant, `rules` what is to become of each (`worker`: in a process
of its own), `guards` refuses what would do harm, `undo_log` keeps the old bytes, `apply` sends the new ones.
`plan` writes down what a run would do and applies that, `undo` puts back what a run overwrote.
"""
