"""How documents become text: tables, lines, pages, columns."""
