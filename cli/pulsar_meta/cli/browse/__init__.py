"""The screen of `browse`: a tree of a store at the left, what lies at a place of it at the right.

Only the command `browse` imports these modules, since textual takes its time. Nothing here has an answer of
its own: `of_values`, `of_topics`, `of_entries`, `of_findings` and `of_search` ask the jobs that the commands
ask, in threads that nobody waits for (`lanes`), and the other modules draw.
"""
