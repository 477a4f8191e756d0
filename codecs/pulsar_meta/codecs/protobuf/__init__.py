"""Protobuf messages: parsed, parsed as far as they go, edited field by field, as text, as JSON and back."""
