"""The JSON form of messages and documents, there and back."""
