"""The command line: a file per command, a renderer per kind of value, one place where errors become exits."""
