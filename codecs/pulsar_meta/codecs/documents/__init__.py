"""Values of every kind as the documents that `decode` prints and `encode` takes back."""
