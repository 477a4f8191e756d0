"""Pure functions that decode and encode the formats of Pulsar and BookKeeper.

They open no files or sockets and read no clock. A decoder returns a value or raises
`pulsar_meta.codecs.errors.DecodeError`; any other exception is a bug.
"""
