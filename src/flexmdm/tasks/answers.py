"""The shape of what models write, common to all tasks."""

EMPTY = "(empty)"  # shown to a person in the place of a text without characters
