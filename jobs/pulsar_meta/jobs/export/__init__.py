"""Export the messages of topics to files of tables, with a manifest that lists the contents."""
