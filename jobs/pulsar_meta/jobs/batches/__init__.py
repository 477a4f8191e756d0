"""Messages grouped into batches, and batches made into frames."""
