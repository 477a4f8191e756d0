"""The command line: one module per topic of commands, and `render` for output formats."""
