"""Find problems in a store and its entries, explain them, and print the commands that repair them.

`check` never changes anything. A problem is a `codes.Finding`. Its code is described in `codes/NAME.md`, from
which docs/findings.md and the JSON Schema are generated. Rules are functions of a `topic_view.TopicView`,
grouped in modules (`records`, `ledgers`, `entries`, `cursors`, `schemas`). Problems that only a whole store
shows are in `segments`, `orphans` and `cluster`.

**One scan, little memory.** `checkup` indexes `/ledgers` first (`ledger_index`, seven numbers per ledger) and
reads the records that refer to ledgers after it. If a record refers to a ledger that is not in the index, the
record referred to it before the scan began, or the ledger is gone. A ledger that was created since is not in
the index and is not judged. Records stream through `scan`, which keeps only the ids of the ledgers that they
refer to (`totals`, 8 bytes each), so at the end the unreferenced ledgers are known. `jobs.spark.check` scans
parts of a store in parallel.

**Some topics.** For named topics, only the ledgers that their records refer to are read
(`ledger_index.LazyLedgers`). The first topics of a whole store are checked in this way, too, before all
ledgers are indexed.

**Suspicion, then confirmation.** A finding that a rule makes during a scan is only a suspicion.
`topic_reader` then reads the whole topic, its ledgers' metadata first and its records after it, and the rules
run once more. Only these findings are reported. If disks or a RocksDB change during the run, `recheck` looks
further times.

**No silence.** Everything that could not be checked is counted and reported with the reason.
"""
