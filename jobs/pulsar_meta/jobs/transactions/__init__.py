"""What became of transactions: of the messages that they published, and of what they acknowledged."""
