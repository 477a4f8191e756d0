"""Messages as rows of Arrow batches, with chunks joined and values decoded by the topic's schemas."""
