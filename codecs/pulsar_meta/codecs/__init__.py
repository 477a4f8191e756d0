"""Pure functions between the bytes of Pulsar and BookKeeper and the values they stand for.

Nothing here opens a file or a socket or looks at a clock. A decoder returns a value or raises
`pulsar_meta.codecs.errors.DecodeError`; any other exception is a bug.
"""
