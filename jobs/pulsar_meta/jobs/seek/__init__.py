"""Find indexes and times in topics: questions, readings, samples, the search, and the answers."""
