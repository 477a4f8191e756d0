"""Values of one store brought into another.

`survey` looks at both before anything is written, `floors` says how far the counters have to go, `values`
what is to become of each value. `topics` chooses what belongs to a topic, `remains` says what of its
ledgers is still on the disks.
"""
