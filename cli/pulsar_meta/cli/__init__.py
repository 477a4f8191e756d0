"""The command line: one file per command, one renderer per kind of value, one place that turns errors into exits."""
