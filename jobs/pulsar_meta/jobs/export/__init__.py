"""Topics exported: messages as files of tables, and the manifest that says what is in them."""
