"""Tasks: data, prompts and answers of each domain."""
