"""Serialized protobuf messages: parsed, parsed as far as they go, edited field by field, and as text."""
