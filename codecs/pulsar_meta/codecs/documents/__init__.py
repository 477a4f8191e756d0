"""Values of all kinds as JSON documents, which `decode` prints and `encode` reads."""
