"""Where entry bytes come from, behind one small protocol (`base.EntrySource`), opened by URL (`registry.open_entries`)."""
