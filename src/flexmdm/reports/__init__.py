"""Everything a person looks at: tables, charts, pages, films and printed answers."""
