"""The model of a topic: its ledgers, cursors and partitions, and which topics a name stands for."""
