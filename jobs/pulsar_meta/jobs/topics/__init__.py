"""Topics: their ledgers, cursors and partitions, and how names select them."""
