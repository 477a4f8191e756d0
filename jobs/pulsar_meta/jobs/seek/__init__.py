"""Where an index or a time lies in a topic."""
