"""Where entry bytes come from: one small protocol (`base.EntrySource`), opened by URL (`registry`)."""
