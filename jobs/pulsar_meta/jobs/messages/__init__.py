"""Messages as rows: entries opened, chunks joined, values by the topic's own schemas, as Arrow batches."""
