"""Values of the store: where they come from, where they lie, how big they are."""
