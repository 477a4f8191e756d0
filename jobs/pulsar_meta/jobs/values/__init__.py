"""Values of a store: their inputs, paths and sizes, comparisons, and snapshots."""
